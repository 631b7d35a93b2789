// Slots limits how many pods are bound at one time, and lets pods wait for company.
//
//	slots.example.com/use: "true"   on the pod: it takes one of the slots until it is bound
//	slots.example.com/wait: "true"  on the pod: it waits until another pod of its namespace takes a slot
//	slots.example.com/slot: "2"     on the pod, before it is bound: the number of its slot, from 1
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"strconv"
	"sync"
	"time"

	pb "berth.io/plugin/v1"
	"berth.io/serve"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	name      = "Slots"
	longest   = 30 * time.Second // a pod waits
	remembers = 5 * time.Minute  // that a cycle is over
)

// cycle is what the plugin holds for one cycle. The token of the cycle is the number of its slot, so that PreBind needs no
// memory, and a restarted process takes the slot up.
type cycle struct {
	namespace, uid string
	slot           int // 0: none
	isWaiting      bool
	reserved       *pb.ReserveResponse // the answer, for a duplicate; nil: not asked
	permitted      *pb.PermitResponse
}

type slots struct {
	pb.UnimplementedSchedulingServiceServer
	pb.UnimplementedStateServiceServer
	mu         sync.Mutex
	slots      map[string]int // the argument, by profile
	cycles     map[string]*cycle
	over       map[string]time.Time // when each cycle ended, for a Reserve that comes late
	connection *grpc.ClientConn     // to HandleService; nil: the host offers none
	token      string               // for HandleService
}

func (s *slots) configure(request *pb.ConfigureRequest) error {
	slots := map[string]int{}
	for _, plugin := range request.Plugins {
		number := plugin.Args.GetFields()["slots"].GetNumberValue()
		count := int(number)
		if count < 1 || float64(count) != number {
			return errors.New("slots: must be a whole number above 0")
		}
		slots[plugin.Profile] = count
	}
	var connection *grpc.ClientConn
	if request.Handle != nil {
		var err error
		plaintext := grpc.WithTransportCredentials(insecure.NewCredentials())
		if connection, err = grpc.NewClient(request.Handle.Target, plaintext); err != nil {
			return fmt.Errorf("handle.target: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connection != nil {
		_ = s.connection.Close()
	}
	s.slots, s.connection, s.token = slots, connection, request.Handle.GetToken()
	return nil
}

func (s *slots) Reserve(_ context.Context, request *pb.ReserveRequest) (*pb.ReserveResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, pod := request.Ctx.CycleId, request.Ctx.Pod.GetSummary()
	s.ended(request.Ctx.Ended)
	if _, isOver := s.over[id]; isOver {
		return &pb.ReserveResponse{Ctx: decided(id, pb.PluginStatus_CODE_ERROR, "the cycle is over")}, nil
	}
	if pod.GetAnnotations()["slots.example.com/use"] != "true" {
		return &pb.ReserveResponse{Ctx: decided(id, pb.PluginStatus_CODE_SKIP)}, nil
	}
	one := s.cycle(id, pod.GetRef())
	if one.reserved == nil {
		one.reserved = &pb.ReserveResponse{Ctx: decided(id, pb.PluginStatus_CODE_UNSCHEDULABLE, "no slot is free")}
		if one.slot = s.free(s.slots[request.Ctx.Profile]); one.slot > 0 {
			one.reserved.Ctx = decided(id, pb.PluginStatus_CODE_SUCCESS)
			one.reserved.Ctx.PluginToken = []byte(strconv.Itoa(one.slot))
			s.allowOthers(one)
		}
	}
	return one.reserved, nil
}

func (s *slots) Permit(_ context.Context, request *pb.PermitRequest) (*pb.PermitResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, pod := request.Ctx.CycleId, request.Ctx.Pod.GetSummary()
	s.ended(request.Ctx.Ended)
	if _, isOver := s.over[id]; isOver {
		return &pb.PermitResponse{Ctx: decided(id, pb.PluginStatus_CODE_ERROR, "the cycle is over")}, nil
	}
	if pod.GetAnnotations()["slots.example.com/wait"] != "true" {
		return &pb.PermitResponse{Ctx: decided(id, pb.PluginStatus_CODE_SUCCESS)}, nil
	}
	one := s.cycle(id, pod.GetRef())
	if one.permitted == nil {
		one.isWaiting = true
		one.permitted = &pb.PermitResponse{
			Ctx:         decided(id, pb.PluginStatus_CODE_WAIT, "waits for another pod of its namespace"),
			WaitTimeout: durationpb.New(longest),
		}
	}
	return one.permitted, nil
}

func (s *slots) PreBindPreFlight(
	_ context.Context, request *pb.PreBindPreFlightRequest,
) (*pb.PreBindPreFlightResponse, error) {
	code := pb.PluginStatus_CODE_SUCCESS
	if len(request.Ctx.PluginToken) == 0 {
		code = pb.PluginStatus_CODE_SKIP
	}
	return &pb.PreBindPreFlightResponse{Ctx: decided(request.Ctx.CycleId, code)}, nil
}

// PreBind writes the number of the slot to the pod.
func (s *slots) PreBind(_ context.Context, request *pb.PreBindRequest) (*pb.PreBindResponse, error) {
	answer := &pb.PreBindResponse{Ctx: decided(request.Ctx.CycleId, pb.PluginStatus_CODE_SUCCESS)}
	if len(request.Patched) > 0 {
		if patched := request.Patched[0]; patched.Outcome != pb.PatchResult_OUTCOME_APPLIED {
			reason := "the slot could not be written to the pod: " + patched.Message
			answer.Ctx = decided(request.Ctx.CycleId, pb.PluginStatus_CODE_ERROR, reason)
		}
		return answer, nil
	}
	if slot := string(request.Ctx.PluginToken); slot != "" {
		annotations := map[string]string{"slots.example.com/slot": slot}
		patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		answer.DoneWhenApplied = true
		answer.Patches = []*pb.ObjectPatch{{
			Resource: "pods", Ref: request.Ctx.Pod.GetSummary().GetRef(), MergePatchJson: patch,
			Action: pb.ObjectPatch_ACTION_MERGE,
		}}
	}
	return answer, nil
}

func (s *slots) PostBind(_ context.Context, request *pb.PostBindRequest) (*pb.PostBindResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range request.Items {
		s.end(item.CycleId)
	}
	return &pb.PostBindResponse{}, nil
}

func (s *slots) Unreserve(_ context.Context, request *pb.UnreserveRequest) (*pb.UnreserveResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &pb.UnreserveResponse{}
	for _, item := range request.Items {
		s.end(item.CycleId)
		answer.DoneCycleIds = append(answer.DoneCycleIds, item.CycleId)
	}
	return answer, nil
}

func (s *slots) EndCycles(_ context.Context, request *pb.EndCyclesRequest) (*pb.EndCyclesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended(request.Ended)
	return &pb.EndCyclesResponse{}, nil
}

// Reconcile keeps exactly the cycles that the pages list. A cycle that this process does not remember has its slot in the
// token.
func (s *slots) Reconcile(stream pb.StateService_ReconcileServer) error {
	var live []*pb.LiveReservation
	for sequence, last := uint32(0), false; ; sequence++ {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) && last {
			break
		} else if errors.Is(err, io.EOF) {
			return status.Error(codes.InvalidArgument, "the stream ended before the last page")
		} else if err != nil {
			return err
		} else if last || page.Sequence != sequence {
			return status.Errorf(codes.InvalidArgument, "page %d came in the place of %d", page.Sequence, sequence)
		}
		live, last = append(live, page.Live...), page.Last
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, kept := &pb.ReconcileResponse{}, map[string]*cycle{}
	for _, item := range live {
		slot, err := strconv.Atoi(string(item.PluginToken))
		if len(item.PluginToken) > 0 && err != nil {
			answer.UnknownCycleIds = append(answer.UnknownCycleIds, item.CycleId)
			continue
		}
		one := s.cycle(item.CycleId, item.Pod)
		one.slot, one.isWaiting = slot, item.WaitingOnPermit
		kept[item.CycleId] = one
		delete(s.over, item.CycleId)
	}
	for id := range s.cycles {
		if kept[id] == nil {
			s.end(id)
		}
	}
	return stream.SendAndClose(answer)
}

// cycle returns what is held for a cycle, which may be new.
func (s *slots) cycle(id string, pod *pb.ObjectRef) *cycle {
	one := s.cycles[id]
	if one == nil {
		one = &cycle{namespace: pod.GetNamespace(), uid: pod.GetUid()}
		s.cycles[id] = one
	}
	return one
}

// free returns the lowest slot that no cycle has; 0: there is none.
func (s *slots) free(slots int) int {
	taken := map[int]bool{}
	for _, one := range s.cycles {
		taken[one.slot] = true
	}
	for slot := 1; slot <= slots; slot++ {
		if !taken[slot] {
			return slot
		}
	}
	return 0
}

// end drops what is held for a cycle. A cycle that is not known counts as ended.
func (s *slots) end(id string) {
	delete(s.cycles, id)
	for one, at := range s.over {
		if time.Since(at) > remembers {
			delete(s.over, one)
		}
	}
	s.over[id] = time.Now()
}

// ended drops the cycles that hold nothing any more. Of the others the host says so itself, by Unreserve.
func (s *slots) ended(cycles []*pb.CycleEnd) {
	for _, item := range cycles {
		if one := s.cycles[item.CycleId]; one != nil && (one.slot == 0 || item.Outcome == pb.CycleEnd_OUTCOME_BOUND) {
			s.end(item.CycleId)
		}
	}
}

// allowOthers allows the pods that wait in the namespace of a cycle. If the call fails, they wait for the next Reserve or
// for the end of their time.
func (s *slots) allowOthers(reserved *cycle) {
	var decisions []*pb.WaitDecision
	for id, one := range s.cycles {
		if one.isWaiting && one.namespace == reserved.namespace && one.uid != reserved.uid {
			decisions = append(decisions, &pb.WaitDecision{PodUid: one.uid, CycleId: id, Verdict: pb.WaitDecision_VERDICT_ALLOW})
		}
	}
	if decisions == nil || s.connection == nil {
		return
	}
	host := pb.NewHandleServiceClient(s.connection)
	ctx := metadata.AppendToOutgoingContext(
		context.Background(), "authorization", "Bearer "+s.token, "berth-plugin", name)
	go func() { // the answer of Reserve does not wait for the host
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		request := &pb.DecideWaitingPodsRequest{Plugin: name, Decisions: decisions}
		if _, err := host.DecideWaitingPods(ctx, request); err != nil {
			log.Printf("the pods that wait could not be allowed: %v", err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, one := range decisions {
			if known := s.cycles[one.CycleId]; known != nil {
				known.isWaiting = false
			}
		}
	}()
}

func decided(id string, code pb.PluginStatus_Code, reasons ...string) *pb.ReplyContext {
	return &pb.ReplyContext{CycleId: id, Status: &pb.PluginStatus{Code: code, Reasons: reasons}}
}

func main() {
	s := &slots{cycles: map[string]*cycle{}, over: map[string]time.Time{}}
	me := &pb.PluginDescriptor{
		Name: name,
		Points: []pb.ExtensionPoint{
			pb.ExtensionPoint_EXTENSION_POINT_RESERVE, pb.ExtensionPoint_EXTENSION_POINT_PERMIT,
			pb.ExtensionPoint_EXTENSION_POINT_PRE_BIND, pb.ExtensionPoint_EXTENSION_POINT_POST_BIND,
		},
		HandleClient: true,
		// No call comes about a pod with neither annotation. The methods read them all the same: a host may ask about more.
		Scope: &pb.PodScope{Terms: []*pb.PodScopeTerm{
			{AnnotationKeys: []string{"slots.example.com/use", "slots.example.com/wait"}},
		}},
	}
	serve.Plugin(me, s.configure, func(server *grpc.Server) {
		pb.RegisterSchedulingServiceServer(server, s)
		pb.RegisterStateServiceServer(server, s)
	})
}
