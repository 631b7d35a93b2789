// Records what Kubernetes' own reader makes of YAML texts: the table that tests/host/yaml compares with.
//
//	go run ./yamltable <sigs_yaml.jsonl >new.jsonl
//
// Each line in has a name and a text. Each line out has them too, and what was made of the text: `json`, or
// `error`; `strict_error` where strict reading refuses it; `documents` where kubectl finds other than one.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	streams "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

type record struct {
	Name           string            `json:"name"`
	Text           string            `json:"text"`
	JSON           json.RawMessage   `json:"json,omitempty"`
	Error          string            `json:"error,omitempty"`
	StrictError    string            `json:"strict_error,omitempty"`
	Documents      []json.RawMessage `json:"documents,omitempty"`
	DocumentsError string            `json:"documents_error,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for lines.Scan() {
		var given record
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(read(given.Name, given.Text)); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

func read(name, text string) record {
	made := record{Name: name, Text: text}
	if value, err := yaml.YAMLToJSON([]byte(text)); err != nil {
		made.Error = err.Error()
	} else {
		made.JSON = value
	}
	if _, err := yaml.YAMLToJSONStrict([]byte(text)); err != nil {
		made.StrictError = err.Error()
	}
	decoder := streams.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var document runtime.RawExtension
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			made.DocumentsError = err.Error()
			break
		}
		raw := document.Raw
		if len(raw) == 0 {
			raw = []byte("null")
		}
		made.Documents = append(made.Documents, raw)
	}
	if len(made.Documents) == 1 && string(made.Documents[0]) == string(made.JSON) {
		made.Documents = nil
	}
	if made.DocumentsError == made.Error {
		made.DocumentsError = ""
	}
	return made
}
