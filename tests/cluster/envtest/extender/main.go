// Command extender is an HTTP extender of kube-scheduler that does what berth's plugin LabelRank does: it
// filters nodes by one label and scores them by another. `berth bench versus` builds and starts it.
//
// It is asked by the names of nodes, which it has listed once, with -node-cache-capable, and is sent whole
// nodes without. With -vary, the ranks turn by one with each pod, so that no two answers to prioritize are
// equal. Of the scheduler's messages it reads only what it needs, so it is quicker than an extender that
// decodes Kubernetes' own types.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

const (
	closedLabel = "versus.berth.io/closed"
	rankLabel   = "versus.berth.io/rank"
	reason      = "node is closed"
	ranks       = 11
)

// node is what the work needs of a Node.
type node struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
}

func (n *node) closed() bool { return n.Metadata.Labels[closedLabel] == "true" }

// rank is 0 for a node without one, or with one that is no number.
func (n *node) rank() int64 {
	rank, _ := strconv.ParseInt(n.Metadata.Labels[rankLabel], 10, 64)
	return rank
}

// nodeList keeps each node as it came, so that it can be sent back.
type nodeList struct {
	Items []json.RawMessage `json:"items"`
}

// question is what the scheduler sends, for either verb: one of the two is set.
type question struct {
	Nodes     *nodeList
	NodeNames *[]string
}

type filterAnswer struct {
	Nodes                      *nodeList         `json:",omitempty"`
	NodeNames                  *[]string         `json:",omitempty"`
	FailedAndUnresolvableNodes map[string]string `json:",omitempty"`
	Error                      string            `json:",omitempty"`
}

type hostPriority struct {
	Host  string
	Score int64
}

// extender answers; cache is nil when it is sent whole nodes, and is not written after the start.
type extender struct {
	cache map[string]*node
	vary  bool
	turns atomic.Int64
}

// each calls do with every node of a question, and its JSON where it came with the question.
func (e *extender) each(asked *question, do func(*node, json.RawMessage)) error {
	if e.cache != nil {
		if asked.NodeNames == nil {
			return fmt.Errorf("the scheduler sent no names: its nodeCacheCapable is not set")
		}
		for _, name := range *asked.NodeNames {
			known := e.cache[name]
			if known == nil {
				return fmt.Errorf("node %s is not known", name)
			}
			do(known, nil)
		}
		return nil
	}
	if asked.Nodes == nil {
		return fmt.Errorf("the scheduler sent no nodes: its nodeCacheCapable is set")
	}
	for _, raw := range asked.Nodes.Items {
		var one node
		if err := json.Unmarshal(raw, &one); err != nil {
			return err
		}
		do(&one, raw)
	}
	return nil
}

func (e *extender) filter(asked *question) any {
	answer := filterAnswer{FailedAndUnresolvableNodes: map[string]string{}}
	names, items := []string{}, []json.RawMessage{}
	err := e.each(asked, func(one *node, raw json.RawMessage) {
		switch {
		case one.closed():
			answer.FailedAndUnresolvableNodes[one.Metadata.Name] = reason
		case raw == nil:
			names = append(names, one.Metadata.Name)
		default:
			items = append(items, raw)
		}
	})
	if err != nil {
		return filterAnswer{Error: err.Error()}
	}
	if e.cache != nil {
		answer.NodeNames = &names
	} else {
		answer.Nodes = &nodeList{Items: items}
	}
	return answer
}

// prioritize has no way to say that it failed but to say nothing, which the scheduler logs.
func (e *extender) prioritize(asked *question) any {
	scores, turn := []hostPriority{}, int64(0)
	if e.vary {
		turn = e.turns.Add(1)
	}
	err := e.each(asked, func(one *node, _ json.RawMessage) {
		scores = append(scores, hostPriority{one.Metadata.Name, (one.rank() + turn) % ranks})
	})
	if err != nil {
		log.Print(err)
	}
	return scores
}

func answering(work func(*question) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked question
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(work(&asked)); err != nil {
			log.Print(err)
		}
	}
}

// listed asks an API server for all nodes, by name.
func listed(server, tokenFile, caFile string) (map[string]*node, error) {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s holds no certificate", caFile)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	request, err := http.NewRequest(http.MethodGet, server+"/api/v1/nodes", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the API server answered %s", answer.Status)
	}
	var list struct{ Items []*node }
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		return nil, err
	}
	nodes := make(map[string]*node, len(list.Items))
	for _, one := range list.Items {
		nodes[one.Metadata.Name] = one
	}
	return nodes, nil
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address")
	caching := flag.Bool("node-cache-capable", false, "be asked by names; list the nodes once, from -server")
	server := flag.String("server", "", "URL of the API server")
	tokenFile := flag.String("token-file", "", "file with a token for the API server")
	caFile := flag.String("ca-file", "", "file with the authority of the API server")
	vary := flag.Bool("vary", false, "rank the nodes in another way for each pod")
	flag.Parse()
	e := extender{vary: *vary}
	if *caching {
		var err error
		if e.cache, err = listed(*server, *tokenFile, *caFile); err != nil {
			log.Fatal(err)
		}
	}
	http.HandleFunc("POST /filter", answering(e.filter))
	http.HandleFunc("POST /prioritize", answering(e.prioritize))
	log.Fatal(http.ListenAndServe(*listen, nil))
}
