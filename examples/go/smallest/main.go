// Maintenance keeps pods off the nodes that its argument `nodes` names. It is in NAMES mode: it gets names of nodes, and
// no state.
package main

import (
	"context"
	"errors"
	"sync/atomic"

	pb "berth.io/plugin/v1"
	"berth.io/serve"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

type maintenance struct {
	pb.UnimplementedSchedulingServiceServer
	closed atomic.Pointer[map[string]map[string]bool] // by profile
}

func (m *maintenance) configure(request *pb.ConfigureRequest) error {
	closed := map[string]map[string]bool{}
	for _, plugin := range request.Plugins {
		closed[plugin.Profile] = map[string]bool{}
		for _, node := range plugin.Args.GetFields()["nodes"].GetListValue().GetValues() {
			if _, isText := node.Kind.(*structpb.Value_StringValue); !isText {
				return errors.New("nodes: must be a list of names of nodes")
			}
			closed[plugin.Profile][node.GetStringValue()] = true
		}
	}
	m.closed.Store(&closed)
	return nil
}

func (m *maintenance) Filter(_ context.Context, request *pb.FilterRequest) (*pb.FilterResponse, error) {
	var shut []string
	for _, node := range request.Candidates.GetNames() {
		if (*m.closed.Load())[request.Ctx.Profile][node] {
			shut = append(shut, node)
		}
	}
	answer := &pb.FilterResponse{Ctx: &pb.ReplyContext{CycleId: request.Ctx.CycleId}}
	if shut != nil {
		answer.Verdicts = &pb.NodeVerdicts{Rejected: []*pb.NodeGroup{{
			Status: &pb.PluginStatus{Code: pb.PluginStatus_CODE_UNSCHEDULABLE, Reasons: []string{"under maintenance"}},
			Nodes:  &pb.NodeSet{Names: shut},
		}}}
	}
	return answer, nil
}

// EndCycles has nothing to do: the plugin keeps nothing of a cycle.
func (m *maintenance) EndCycles(context.Context, *pb.EndCyclesRequest) (*pb.EndCyclesResponse, error) {
	return &pb.EndCyclesResponse{}, nil
}

func main() {
	m := &maintenance{}
	me := &pb.PluginDescriptor{
		Name:             "Maintenance",
		Points:           []pb.ExtensionPoint{pb.ExtensionPoint_EXTENSION_POINT_FILTER},
		DependsOn:        pb.DependsOn_DEPENDS_ON_NODE,
		SignFields:       &pb.PodFields{}, // no field of the pod counts
		HostKeepsAnswers: true,
	}
	serve.Plugin(me, m.configure, func(server *grpc.Server) { pb.RegisterSchedulingServiceServer(server, m) })
}
