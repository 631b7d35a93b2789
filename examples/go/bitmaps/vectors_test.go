package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	pb "berth.io/plugin/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// vectors reads a file of proto/vectors.
func vectors(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("../../../proto/vectors/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// message is one message of the vectors: its JSON form and its bytes, or the bytes alone in `hex`.
type message struct {
	Type   string
	JSON   json.RawMessage
	Base64 string
	Hex    string
}

// read decodes a message, and checks that both forms say the same.
func (m message) read(t *testing.T) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(m.Type))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(m.Base64)
	if m.Hex != "" {
		raw, err = hex.DecodeString(m.Hex)
	}
	found := kind.New().Interface()
	if err == nil {
		err = proto.Unmarshal(raw, found)
	}
	if err != nil {
		t.Fatal(err)
	}
	if m.JSON != nil {
		written := kind.New().Interface()
		if err := protojson.Unmarshal(m.JSON, written); err != nil || !proto.Equal(written, found) {
			t.Fatalf("the two forms differ: %v, %v (%v)", written, found, err)
		}
	}
	return found
}

func TestNodeSetsAndBitmaps(t *testing.T) {
	var file struct {
		Bitmaps []struct {
			Name    string
			Indices []int
			Hex     string
		}
		Sets []struct {
			Name    string
			Set     message
			Within  []uint32
			Indices []int
		}
	}
	vectors(t, "node_sets", &file)
	for _, one := range file.Bitmaps {
		raw, _ := hex.DecodeString(one.Hex)
		// The plugin leaves out zero bytes at the end.
		if got := bitmapOf(one.Indices); !slices.Equal(got, bytes.TrimRight(raw, "\x00")) {
			t.Errorf("%s: bitmap %x, not %x", one.Name, got, raw)
		}
	}
	for _, one := range file.Sets {
		set := one.Set.read(t).(*pb.NodeSet)
		if len(set.Names) > 0 {
			continue // not in SNAPSHOT mode
		}
		held := &table{}
		for _, index := range one.Within {
			held.set(index, &node{})
		}
		got := held.chosen(set)
		if !slices.Equal(got, one.Indices) {
			t.Errorf("%s: %v, not %v", one.Name, got, one.Indices)
		}
	}
}

func TestDeltas(t *testing.T) {
	type state struct {
		Version struct{ Epoch, Generation uint64 }
		Nodes   []struct {
			Index       uint32
			Name        string
			Generation  uint64
			Allocatable map[string]int64
			Requested   map[string]int64
		}
		ObjectCount int `json:"object_count"`
	}
	var file struct {
		Cases []struct {
			Name  string
			Steps []struct {
				In, Outcome string
				Delta       message
				Chunks      []message
				Answer      message
				Copy        *state
			}
		}
	}
	vectors(t, "state", &file)
	for _, one := range file.Cases {
		if last := one.Steps[0].Copy; last != nil && last.ObjectCount > 0 {
			continue // the plugin declares no objects, and gets none
		}
		held := &table{}
		for number, step := range one.Steps {
			name := fmt.Sprintf("%s, step %d", one.Name, number)
			var isHeld bool
			if step.In == "call" {
				isHeld = held.apply(step.Delta.read(t).(*pb.StateDelta))
			} else {
				whole := &pb.StateDelta{}
				for _, chunk := range step.Chunks {
					whole = joined(whole, chunk.read(t).(*pb.SyncStateRequest).Chunk)
				}
				isHeld = held.apply(whole)
				answer := &pb.SyncStateResponse{Have: held.version, NeedFull: !isHeld}
				if want := step.Answer.read(t); !proto.Equal(answer, want) {
					t.Errorf("%s: answer %v, not %v", name, answer, want)
				}
			}
			if isHeld != (step.Outcome != "missing") {
				t.Errorf("%s: applied %v, but the outcome is %s", name, isHeld, step.Outcome)
			}
			if (held.version == nil) != (step.Copy == nil) {
				t.Fatalf("%s: version %v", name, held.version)
			} else if step.Copy == nil {
				continue
			}
			want := &table{version: &pb.StateVersion{Epoch: step.Copy.Version.Epoch, Generation: step.Copy.Version.Generation}}
			for _, its := range step.Copy.Nodes {
				want.set(its.Index, &node{its.Name, its.Generation, its.Allocatable["cpu"], its.Requested["cpu"]})
			}
			for len(held.nodes) > len(want.nodes) && held.nodes[len(held.nodes)-1] == nil {
				held.nodes = held.nodes[:len(held.nodes)-1] // places of nodes that are gone
			}
			if !same(held.version, want.version) || !reflect.DeepEqual(held.nodes, want.nodes) || held.sum != want.sum {
				t.Errorf("%s: the copy is %v, not %v", name, held, want)
			}
		}
	}
}

func TestDigests(t *testing.T) {
	type step struct {
		Delta         message
		NodeCount     uint32 `json:"node_count"`
		ObjectCount   uint32 `json:"object_count"`
		GenerationSum uint64 `json:"generation_sum"`
	}
	var file struct {
		Cases []struct {
			Name  string
			Steps []step
			Wrong []struct {
				Why   string
				Delta message
			}
		}
	}
	vectors(t, "digests", &file)
	for _, one := range file.Cases {
		if slices.ContainsFunc(one.Steps, func(its step) bool { return its.ObjectCount > 0 }) {
			continue // the plugin declares no objects, and gets none
		}
		held := &table{}
		for number, its := range one.Steps {
			if !held.apply(its.Delta.read(t).(*pb.StateDelta)) {
				t.Errorf("%s: step %d is refused", one.Name, number)
			}
			if held.count != its.NodeCount || held.sum%(1<<53) != its.GenerationSum {
				t.Errorf("%s: %d nodes, sum %d, not %v", one.Name, held.count, held.sum%(1<<53), its)
			}
		}
		for _, wrong := range one.Wrong {
			held := &table{}
			for _, its := range one.Steps[:len(one.Steps)-1] {
				held.apply(its.Delta.read(t).(*pb.StateDelta))
			}
			if held.apply(wrong.Delta.read(t).(*pb.StateDelta)) {
				t.Errorf("%s: taken up, although %s", one.Name, wrong.Why)
			}
		}
	}
}

func TestScenarios(t *testing.T) {
	var file struct {
		State     message
		Scenarios []struct {
			Name    string
			ByIndex message `json:"by_index"`
			Free    map[string]int64
		}
	}
	vectors(t, "scenarios", &file)
	held := &table{}
	if !held.apply(file.State.read(t).(*pb.StateDelta)) {
		t.Fatal("the state is refused")
	}
	for _, one := range file.Scenarios {
		changed := one.ByIndex.read(t).(*pb.Scenario).Node
		if got := held.at(changed.GetNodeIndex()).using(changed.Usage).free(); got != one.Free["cpu"] {
			t.Errorf("%s: %d is free, not %d", one.Name, got, one.Free["cpu"])
		}
	}
}

func TestScores(t *testing.T) {
	var file struct {
		Forms []struct {
			Name    string
			Message message
			Scores  []int64
		}
	}
	vectors(t, "scores", &file)
	seen := 0
	for _, one := range file.Forms {
		if read := one.Message.read(t).(*pb.Scores); len(read.Dense) > 0 {
			seen++
			raw, _ := base64.StdEncoding.DecodeString(one.Message.Base64)
			sent, err := proto.Marshal(&pb.Scores{Dense: one.Scores})
			if err != nil || !slices.Equal(sent, raw) || !slices.Equal(read.Dense, one.Scores) {
				t.Errorf("%s: %x, not %x", one.Name, sent, raw)
			}
		}
	}
	if seen == 0 {
		t.Error("no scores of the form `dense`")
	}
}

// TestZeroValues shows what README.md says of zero values, enums, 64 bits and unknown fields.
func TestZeroValues(t *testing.T) {
	type field struct {
		Path    string
		Value   json.RawMessage
		Present *bool
	}
	type one struct {
		Name    string
		Message message // in `messages`
		message         // in `unknown`
		Fields  []field
	}
	var file struct{ Messages, Unknown []one }
	vectors(t, "zero_values", &file)
	for _, its := range append(file.Messages, file.Unknown...) {
		written := its.Message
		if written.Type == "" {
			written = its.message
		}
		for _, want := range its.Fields {
			holder := written.read(t).ProtoReflect()
			names := strings.Split(want.Path, ".")
			for _, name := range names[:len(names)-1] {
				holder = holder.Get(holder.Descriptor().Fields().ByName(protoreflect.Name(name))).Message()
			}
			described := holder.Descriptor().Fields().ByName(protoreflect.Name(names[len(names)-1]))
			if want.Present != nil && holder.Has(described) != *want.Present {
				t.Errorf("%s: %s is present: %v", its.Name, want.Path, holder.Has(described))
			}
			if want.Value != nil {
				got, _ := json.Marshal(plain(holder.Get(described), described))
				if compact(got) != compact(want.Value) {
					t.Errorf("%s: %s is %s, not %s", its.Name, want.Path, got, want.Value)
				}
			}
		}
	}
}

// plain returns a value of a message as JSON writes it in the vectors.
func plain(value protoreflect.Value, described protoreflect.FieldDescriptor) any {
	switch {
	case described.IsList():
		items := []any{}
		for i := range value.List().Len() {
			items = append(items, value.List().Get(i).Interface())
		}
		return items
	case described.IsMap():
		entries := map[string]any{}
		value.Map().Range(func(key protoreflect.MapKey, one protoreflect.Value) bool {
			entries[key.String()] = one.Interface()
			return true
		})
		return entries
	default:
		return value.Interface()
	}
}

// compact returns JSON without blanks.
func compact(text []byte) string {
	var parsed any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber() // 2^53 - 1 as it is written
	if err := decoder.Decode(&parsed); err != nil {
		return err.Error()
	}
	written, _ := json.Marshal(parsed)
	return string(written)
}

// What README.md says of secrets. With a library that leaves them out, this fails: then change the page.
func TestDebugPrintShowsSecrets(t *testing.T) {
	var file struct {
		Messages []struct {
			Name    string
			Message message
		}
	}
	vectors(t, "zero_values", &file)
	secrets := 0
	for _, one := range file.Messages {
		if strings.HasPrefix(one.Name, "a secret") {
			found := one.Message.read(t)
			secrets++
			for _, printed := range []string{fmt.Sprint(found), prototext.Format(found)} {
				if !strings.Contains(printed, "open-sesame") {
					t.Errorf("%s: %s", one.Name, printed)
				}
			}
		}
	}
	if secrets != 2 {
		t.Errorf("%d secrets, not 2", secrets)
	}
}
