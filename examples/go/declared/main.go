// NameRank is a plugin in Go by the contract alone, whose answers the host keeps.
//
// It keeps pods off the nodes whose numbers the arguments close, and ranks the other nodes by their numbers. The number
// of a node is the end of its name: 42 of "node-42". The plugin is in NAMES mode: it gets names of nodes, and no state.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	pb "berth.io/plugin/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	name   = "NameRank"
	ranks  = 11 // the ranks of nodes are 0 to 10
	points = 10 // a rank's score
)

// arguments are read once per Configure, and never change after that.
type arguments struct {
	every int // a node is closed if its number, divided by 10 and rounded down, is a multiple of this; 0: no node is closed
}

type plugin struct {
	pb.UnimplementedIdentityServiceServer
	pb.UnimplementedSchedulingServiceServer
	instanceID string
	startedAt  *timestamppb.Timestamp
	args       atomic.Pointer[arguments]
}

// Handshake declares what the answers follow from. The three lines after Normalization are all that it takes: of the
// cluster only the Node object counts, no field of the pod counts, and the host keeps the answers. So the host asks
// about each node for the first two pods. Later it asks about a node only after its Node object changed.
func (p *plugin) Handshake(context.Context, *pb.HandshakeRequest) (*pb.HandshakeResponse, error) {
	return &pb.HandshakeResponse{
		Supported:  []*pb.ContractVersion{{Major: 1}},
		InstanceId: p.instanceID,
		StartedAt:  p.startedAt,
		Plugins: []*pb.PluginDescriptor{{
			Name:             name,
			Points:           []pb.ExtensionPoint{pb.ExtensionPoint_EXTENSION_POINT_FILTER, pb.ExtensionPoint_EXTENSION_POINT_SCORE},
			NodeMode:         pb.NodeMode_NODE_MODE_NAMES,
			Normalization:    pb.ScoreNormalization_SCORE_NORMALIZATION_NONE,
			DependsOn:        pb.DependsOn_DEPENDS_ON_NODE,
			SignFields:       &pb.PodFields{},
			HostKeepsAnswers: true,
		}},
	}, nil
}

func (p *plugin) Configure(_ context.Context, request *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	read := &arguments{}
	for _, one := range request.Plugins {
		if closed := one.Args.GetFields()["closedTens"]; closed != nil {
			read.every = int(closed.GetNumberValue())
			if read.every < 1 {
				return &pb.ConfigureResponse{Error: "closedTens is not a number above 0"}, nil
			}
		}
	}
	if request.Accepted && !request.Trial {
		p.args.Store(read)
	}
	return &pb.ConfigureResponse{}, nil
}

func (p *plugin) Probe(context.Context, *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	return &pb.ProbeResponse{Ready: true, InstanceId: p.instanceID}, nil
}

func (p *plugin) Drain(context.Context, *pb.DrainRequest) (*pb.DrainResponse, error) {
	return &pb.DrainResponse{}, nil
}

// Filter answers the scores too, which saves the call of Score.
func (p *plugin) Filter(_ context.Context, request *pb.FilterRequest) (*pb.FilterResponse, error) {
	every := p.args.Load().every
	names := request.Candidates.Names
	var closed []string
	for _, one := range names {
		if number := numberOf(one); every > 0 && number/10%every == 0 {
			closed = append(closed, one)
		}
	}
	answer := &pb.FilterResponse{
		Ctx:         &pb.ReplyContext{CycleId: request.Ctx.CycleId},
		EarlyScores: &pb.Scores{Small: scores(names)},
	}
	if closed != nil {
		answer.Verdicts = &pb.NodeVerdicts{Rejected: []*pb.NodeGroup{{
			Status: &pb.PluginStatus{Code: pb.PluginStatus_CODE_UNSCHEDULABLE_AND_UNRESOLVABLE, Reasons: []string{"node is closed"}},
			Nodes:  &pb.NodeSet{Names: closed},
		}}}
	}
	return answer, nil
}

func (p *plugin) Score(_ context.Context, request *pb.ScoreRequest) (*pb.ScoreResponse, error) {
	return &pb.ScoreResponse{
		Ctx:    &pb.ReplyContext{CycleId: request.Ctx.CycleId},
		Scores: &pb.Scores{Small: scores(request.Candidates.Names)},
	}, nil
}

// EndCycles needs no work: the plugin keeps nothing of a cycle.
func (p *plugin) EndCycles(context.Context, *pb.EndCyclesRequest) (*pb.EndCyclesResponse, error) {
	return &pb.EndCyclesResponse{}, nil
}

func scores(names []string) []byte {
	found := make([]byte, len(names))
	for i, one := range names {
		found[i] = byte(points * (numberOf(one) % ranks))
	}
	return found
}

// numberOf returns the number at the end of a name, 0 without one.
func numberOf(node string) int {
	number, err := strconv.Atoi(node[strings.LastIndexByte(node, '-')+1:])
	if err != nil {
		return 0
	}
	return number
}

func main() {
	endpoint := os.Getenv("BERTH_PLUGIN_ENDPOINT")
	listener, err := net.Listen("unix", strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix://"), "unix:"))
	if err != nil {
		log.Fatalf("cannot listen at %q: %v", endpoint, err)
	}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		log.Fatal(err)
	}
	served := &plugin{instanceID: hex.EncodeToString(random), startedAt: timestamppb.New(time.Now())}
	served.args.Store(&arguments{})
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	pb.RegisterIdentityServiceServer(server, served)
	pb.RegisterSchedulingServiceServer(server, served)
	go func() {
		if err := server.Serve(listener); err != nil {
			log.Fatal(err)
		}
	}()
	hello, _ := json.Marshal(map[string]string{
		"protocol":    "berth/1",
		"address":     endpoint,
		"instance_id": served.instanceID,
		"cookie":      os.Getenv("BERTH_PLUGIN_COOKIE"),
	})
	fmt.Println(string(hello))
	_, _ = io.Copy(io.Discard, os.Stdin) // The host holds the other end: this process ends with the host.
	server.Stop()
}
