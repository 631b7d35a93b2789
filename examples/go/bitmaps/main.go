// FreeCpu keeps pods off nodes without enough free cpu, and prefers the nodes with most of it. It is in SNAPSHOT mode: it
// keeps a copy of the nodes, gets sets of nodes as bitmaps, and answers with bitmaps. It declares nothing of what its
// answers follow from, so the host asks it about every pod.
package main

import (
	"context"
	"errors"
	"io"
	"sync"

	pb "berth.io/plugin/v1"
	"berth.io/serve"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type freeCpu struct {
	pb.UnimplementedSchedulingServiceServer
	pb.UnimplementedStateServiceServer
	mu    sync.Mutex
	table table
	pods  map[string]int64 // what the pod of each open cycle requests
}

// begin does what every call of a cycle begins with. It returns the head of the answer and what the pod requests; the
// head says what the plugin lacks.
func (f *freeCpu) begin(ctx *pb.CallContext) (*pb.ReplyContext, int64) {
	reply := &pb.ReplyContext{CycleId: ctx.CycleId}
	f.end(ctx.Ended)
	if ctx.Delta != nil {
		f.table.apply(ctx.Delta)
	}
	if !same(f.table.version, ctx.Version) {
		reply.Missing = append(reply.Missing, pb.Missing_MISSING_STATE)
		reply.Have = f.table.version
	}
	if ctx.Pod.GetComplete() {
		if len(f.pods) >= 4096 {
			clear(f.pods) // where one is needed again, the plugin asks for it
		}
		f.pods[ctx.CycleId] = ctx.Pod.GetSummary().GetRequests()["cpu"]
	}
	cpu, isKnown := f.pods[ctx.CycleId]
	if !isKnown {
		reply.Missing = append(reply.Missing, pb.Missing_MISSING_POD)
	}
	return reply, cpu
}

func (f *freeCpu) end(ended []*pb.CycleEnd) {
	for _, one := range ended {
		delete(f.pods, one.CycleId)
	}
}

var verdict = &pb.PluginStatus{Code: pb.PluginStatus_CODE_UNSCHEDULABLE, Reasons: []string{"not enough free cpu"}}

// Filter answers the scores too, which saves the call of Score.
func (f *freeCpu) Filter(_ context.Context, request *pb.FilterRequest) (*pb.FilterResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reply, cpu := f.begin(request.Ctx)
	answer := &pb.FilterResponse{Ctx: reply}
	if reply.Missing != nil {
		return answer, nil
	}
	var full []int
	for _, index := range f.table.chosen(request.Candidates) {
		if f.table.nodes[index].free() < cpu {
			full = append(full, index)
		}
	}
	answer.EarlyScores = &pb.Scores{Dense: f.left(request.Candidates, cpu)}
	if full != nil {
		nodes := &pb.NodeSet{Bitmap: bitmapOf(full)}
		answer.Verdicts = &pb.NodeVerdicts{Rejected: []*pb.NodeGroup{{Status: verdict, Nodes: nodes}}}
	}
	return answer, nil
}

// SimulateFilter judges nodes with other pods on them.
func (f *freeCpu) SimulateFilter(_ context.Context, request *pb.SimulateFilterRequest) (*pb.SimulateFilterResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reply, cpu := f.begin(request.Ctx)
	answer := &pb.SimulateFilterResponse{Ctx: reply}
	if reply.Missing != nil {
		return answer, nil
	}
	for _, scenario := range request.Scenarios {
		if scenario.Node == nil || scenario.Node.NodeIndex == nil {
			return nil, status.Error(codes.InvalidArgument, "a scenario has no node_index")
		}
		known := f.table.at(*scenario.Node.NodeIndex)
		if known == nil {
			return nil, status.Errorf(codes.InvalidArgument, "no node has the index %d", *scenario.Node.NodeIndex)
		}
		said := &pb.PluginStatus{Code: pb.PluginStatus_CODE_SUCCESS}
		if known.using(scenario.Node.Usage).free() < cpu {
			said = verdict
		}
		answer.Statuses = append(answer.Statuses, said)
	}
	return answer, nil
}

// Score answers what is free on each node with the pod on it, and 0 where the pod does not fit.
func (f *freeCpu) Score(_ context.Context, request *pb.ScoreRequest) (*pb.ScoreResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reply, cpu := f.begin(request.Ctx)
	if reply.Missing != nil {
		return &pb.ScoreResponse{Ctx: reply}, nil
	}
	return &pb.ScoreResponse{Ctx: reply, Scores: &pb.Scores{Dense: f.left(request.Candidates, cpu)}}, nil
}

func (f *freeCpu) left(candidates *pb.NodeSet, cpu int64) (left []int64) {
	for _, index := range f.table.chosen(candidates) {
		left = append(left, max(0, f.table.nodes[index].free()-cpu))
	}
	return left
}

func (f *freeCpu) EndCycles(_ context.Context, request *pb.EndCyclesRequest) (*pb.EndCyclesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(request.Ended)
	return &pb.EndCyclesResponse{}, nil
}

// SyncState collects the chunks, and changes the copy when the last one has arrived.
func (f *freeCpu) SyncState(stream pb.StateService_SyncStateServer) error {
	whole := &pb.StateDelta{}
	for sequence := uint32(0); ; sequence++ {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.InvalidArgument, "the stream ended before the last chunk")
		} else if err != nil {
			return err
		} else if request.Chunk == nil || request.Sequence != sequence {
			return status.Errorf(codes.InvalidArgument, "chunk %d came in the place of %d", request.Sequence, sequence)
		}
		whole = joined(whole, request.Chunk)
		if request.Last {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	isHeld := f.table.apply(whole)
	return stream.SendAndClose(&pb.SyncStateResponse{Have: f.table.version, NeedFull: !isHeld})
}

func main() {
	f := &freeCpu{pods: map[string]int64{}}
	me := &pb.PluginDescriptor{
		Name:     "FreeCpu",
		Points:   []pb.ExtensionPoint{pb.ExtensionPoint_EXTENSION_POINT_FILTER, pb.ExtensionPoint_EXTENSION_POINT_SCORE},
		NodeMode: pb.NodeMode_NODE_MODE_SNAPSHOT, Needs: []*pb.DeclaredNeed{{Kind: pb.DeclaredNeed_KIND_NODE_SUMMARY}},
		PodSensitivity: pb.PodSensitivity_POD_SENSITIVITY_NODE,
		Normalization:  pb.ScoreNormalization_SCORE_NORMALIZATION_HOST_MAX,
	}
	noArguments := func(*pb.ConfigureRequest) error { return nil }
	serve.Plugin(me, noArguments, func(server *grpc.Server) {
		pb.RegisterSchedulingServiceServer(server, f)
		pb.RegisterStateServiceServer(server, f)
	})
}
