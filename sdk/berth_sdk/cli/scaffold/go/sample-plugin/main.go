// SamplePlugin is a scheduling plugin for berth. Say here what it is for.
//
// It is in NAMES mode: each call has the complete pod and the names of the nodes, and the plugin keeps no copy of the cluster.
package main

import (
	"context"
	"encoding/binary" //[queueSort]
	"encoding/json"   //[preBind]
	"errors"          //[reserve]
	"io"              //[reserve]
	"log"             //[postFilter,postBind]
	"math"            //[queueSort]
	"slices"          //[filter,score]
	"strconv"         //[permit]
	"strings"         //[preFilter,filter,score]
	"sync"            //[reserve]
	"time"            //[reserve,permit]

	pb "example.com/sample-plugin/plugin/v1"
	"example.com/sample-plugin/serve"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"                       //[reserve]
	"google.golang.org/grpc/status"                      //[reserve]
	"google.golang.org/protobuf/types/known/durationpb" //[permit]
)

// name is what the configuration of the scheduler calls the plugin.
const name = "SamplePlugin"

//[preEnqueue]

// hold keeps a pod out of the queue.
const hold = "sample-plugin.example.com/hold"

//[/]
//[preFilter]

// only lists the nodes that a pod may run on, separated by commas.
const only = "sample-plugin.example.com/only"

//[/]
//[filter]

// avoid lists the nodes that a pod must not run on, separated by commas.
const avoid = "sample-plugin.example.com/avoid"

//[/]
//[preScore]

// unranked makes the plugin leave the order of the nodes to others.
const unranked = "sample-plugin.example.com/unranked"

//[/]
//[score]

// prefer lists the nodes that a pod would like best, separated by commas.
const prefer = "sample-plugin.example.com/prefer"

//[/]
//[permit]

// wait is the number of seconds that a pod waits before it is bound.
const wait = "sample-plugin.example.com/wait-seconds"

//[/]
//[preBind]

// chosen is where the plugin writes the node of a pod.
const chosen = "sample-plugin.example.com/chosen-node"

//[/]

type rule struct {
	pb.UnimplementedQueueServiceServer      //[queue]
	pb.UnimplementedSchedulingServiceServer //[cycle]
	pb.UnimplementedStateServiceServer      //[reserve]

	places places //[reserve]
}

// configure takes the arguments of every profile. Its error goes to the operator.
func (p *rule) configure(request *pb.ConfigureRequest) error {
	//[reserve]
	limits := map[string]int{}
	for _, plugin := range request.Plugins {
		limit := 110.0
		if given, isGiven := plugin.Args.GetFields()["podsPerNode"]; isGiven {
			limit = given.GetNumberValue()
		}
		if limits[plugin.Profile] = int(limit); limit < 1 || limit != float64(int(limit)) {
			return errors.New("podsPerNode: must be a whole number above 0")
		}
	}
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	p.places.limits = limits
	//[/]
	return nil
}

//[cycle]

// begin does what every call of a cycle begins with. It returns the head of the answer.
func (p *rule) begin(ctx *pb.CallContext) *pb.ReplyContext {
	p.places.ended(ctx.Ended) //[reserve]
	return &pb.ReplyContext{CycleId: ctx.CycleId}
}

//[/]
//[preFilter,filter,score]

// listed returns the names in an annotation of the pod.
func listed(ctx *pb.CallContext, annotation string) []string {
	return strings.FieldsFunc(ctx.Pod.GetSummary().GetAnnotations()[annotation], func(c rune) bool { return c == ',' })
}

//[/]
//[preEnqueue]

// PreEnqueue keeps pods with the annotation hold out of the queue until it is removed.
func (p *rule) PreEnqueue(_ context.Context, request *pb.PreEnqueueRequest) (*pb.PreEnqueueResponse, error) {
	answer := &pb.PreEnqueueResponse{}
	for _, pod := range request.Pods {
		one := &pb.PluginStatus{Code: pb.PluginStatus_CODE_SUCCESS}
		if _, isHeld := pod.Summary.GetAnnotations()[hold]; isHeld {
			one.Code = pb.PluginStatus_CODE_UNSCHEDULABLE_AND_UNRESOLVABLE
			one.Reasons = []string{"annotation " + hold + " holds the pod"}
		}
		answer.Statuses = append(answer.Statuses, one)
	}
	return answer, nil
}

//[/]
//[queueSort]

// SortKeys orders pods by priority, the highest first, then by the time that they wait.
func (p *rule) SortKeys(_ context.Context, request *pb.SortKeysRequest) (*pb.SortKeysResponse, error) {
	answer := &pb.SortKeysResponse{}
	for _, pod := range request.Pods {
		// Keys are compared as bytes: the high byte comes first, and negative numbers sort below the others.
		key := binary.BigEndian.AppendUint32(nil, uint32(math.MaxInt32-int64(pod.Summary.GetPriority())))
		key = binary.BigEndian.AppendUint64(key, uint64(pod.AddedAt.AsTime().UnixNano()))
		answer.Keys = append(answer.Keys, key)
	}
	return answer, nil
}

//[/]
//[preFilter]

// PreFilter reduces the nodes to those that the annotation only lists.
func (p *rule) PreFilter(_ context.Context, request *pb.PreFilterRequest) (*pb.PreFilterResponse, error) {
	answer := &pb.PreFilterResponse{Ctx: p.begin(request.Ctx)}
	if names := listed(request.Ctx, only); len(names) > 0 {
		answer.Eligible = &pb.NodeSet{Names: names}
	}
	return answer, nil
}

//[/]
//[filter]

// Filter rejects the nodes that the annotation avoid lists.
func (p *rule) Filter(_ context.Context, request *pb.FilterRequest) (*pb.FilterResponse, error) {
	answer := &pb.FilterResponse{Ctx: p.begin(request.Ctx)}
	avoided := listed(request.Ctx, avoid)
	var rejected []string
	for _, node := range request.Candidates.GetNames() {
		if slices.Contains(avoided, node) {
			rejected = append(rejected, node)
		}
	}
	if rejected != nil {
		answer.Verdicts = &pb.NodeVerdicts{Rejected: []*pb.NodeGroup{{
			Status: &pb.PluginStatus{
				Code:    pb.PluginStatus_CODE_UNSCHEDULABLE_AND_UNRESOLVABLE,
				Reasons: []string{"node(s) that the pod avoids"},
			},
			Nodes: &pb.NodeSet{Names: rejected},
		}}}
	}
	return answer, nil
}

//[/]
//[postFilter]

// PostFilter says that this plugin cannot make room, so that the host asks the next one.
func (p *rule) PostFilter(_ context.Context, request *pb.PostFilterRequest) (*pb.PostFilterResponse, error) {
	ref := request.Ctx.Pod.GetSummary().GetRef()
	log.Printf("no node for %s/%s", ref.GetNamespace(), ref.GetName())
	reply := decided(p.begin(request.Ctx), pb.PluginStatus_CODE_UNSCHEDULABLE, "sample-plugin cannot make room")
	return &pb.PostFilterResponse{Ctx: reply}, nil
}

//[/]
//[preScore]

// PreScore leaves out Score for pods with the annotation unranked.
func (p *rule) PreScore(_ context.Context, request *pb.PreScoreRequest) (*pb.PreScoreResponse, error) {
	code := pb.PluginStatus_CODE_SUCCESS
	if _, isUnranked := request.Ctx.Pod.GetSummary().GetAnnotations()[unranked]; isUnranked {
		code = pb.PluginStatus_CODE_SKIP
	}
	return &pb.PreScoreResponse{Ctx: decided(p.begin(request.Ctx), code)}, nil
}

//[/]
//[score]

// Score gives the nodes that the annotation prefer lists 50 points, and the others none.
func (p *rule) Score(_ context.Context, request *pb.ScoreRequest) (*pb.ScoreResponse, error) {
	preferred, scores := listed(request.Ctx, prefer), &pb.Scores{}
	for _, node := range request.Candidates.GetNames() {
		score := int64(0)
		if slices.Contains(preferred, node) {
			score = 50
		}
		scores.Dense = append(scores.Dense, score)
	}
	return &pb.ScoreResponse{Ctx: p.begin(request.Ctx), Scores: scores}, nil
}

//[/]
//[normalizeScore]

// NormalizeScore brings the scores into 0..100: the best node gets 100.
func (p *rule) NormalizeScore(
	_ context.Context, request *pb.NormalizeScoreRequest,
) (*pb.NormalizeScoreResponse, error) {
	dense := request.Scores.GetDense()
	for _, small := range request.Scores.GetSmall() { // the host may send either form
		dense = append(dense, int64(small))
	}
	best, scores := int64(0), &pb.Scores{}
	for _, score := range dense {
		best = max(best, score)
	}
	for _, score := range dense {
		scores.Dense = append(scores.Dense, score*100/max(best, 1))
	}
	return &pb.NormalizeScoreResponse{Ctx: p.begin(request.Ctx), Scores: scores}, nil
}

//[/]
//[reserve]

// Reserve takes one of the places of the node, podsPerNode of the arguments.
func (p *rule) Reserve(_ context.Context, request *pb.ReserveRequest) (*pb.ReserveResponse, error) {
	reply := p.begin(request.Ctx)
	reply.Status = p.places.take(request.Ctx.CycleId, request.NodeName, request.Ctx.Profile)
	return &pb.ReserveResponse{Ctx: reply}, nil
}

// Reconcile keeps the reservations that the pages list and no other one, after a restart of this process or of the host.
func (p *rule) Reconcile(stream pb.StateService_ReconcileServer) error {
	live := map[string]string{}
	for sequence, last := uint32(0), false; ; sequence++ {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) && last {
			p.places.keep(live)
			return stream.SendAndClose(&pb.ReconcileResponse{})
		} else if errors.Is(err, io.EOF) {
			return status.Error(codes.InvalidArgument, "the stream ended before the last page")
		} else if err != nil {
			return err
		} else if last || page.Sequence != sequence {
			return status.Errorf(codes.InvalidArgument, "page %d came in the place of %d", page.Sequence, sequence)
		}
		last = page.Last
		for _, one := range page.Live {
			live[one.CycleId] = one.NodeName
		}
	}
}

//[/]
//[reserve,permit]

// Unreserve gives back what the cycles hold. It is called also for cycles that hold nothing.
func (p *rule) Unreserve(_ context.Context, request *pb.UnreserveRequest) (*pb.UnreserveResponse, error) {
	answer := &pb.UnreserveResponse{}
	for _, item := range request.Items {
		p.places.end(item.CycleId) //[reserve]
		answer.DoneCycleIds = append(answer.DoneCycleIds, item.CycleId)
	}
	return answer, nil
}

//[/]
//[permit]

// Permit lets pods with the annotation wait for so many seconds. DecideWaitingPods of HandleService ends it earlier.
func (p *rule) Permit(_ context.Context, request *pb.PermitRequest) (*pb.PermitResponse, error) {
	reply := p.begin(request.Ctx)
	seconds, err := strconv.ParseUint(request.Ctx.Pod.GetSummary().GetAnnotations()[wait], 10, 16)
	if err != nil || seconds == 0 {
		return &pb.PermitResponse{Ctx: decided(reply, pb.PluginStatus_CODE_SUCCESS)}, nil
	}
	return &pb.PermitResponse{
		Ctx:         decided(reply, pb.PluginStatus_CODE_WAIT, "annotation "+wait+" lets the pod wait"),
		WaitTimeout: durationpb.New(time.Duration(seconds) * time.Second),
	}, nil
}

//[/]
//[preBind]

// PreBindPreFlight says that PreBind has work to do for each pod.
func (p *rule) PreBindPreFlight(
	_ context.Context, request *pb.PreBindPreFlightRequest,
) (*pb.PreBindPreFlightResponse, error) {
	return &pb.PreBindPreFlightResponse{Ctx: decided(p.begin(request.Ctx), pb.PluginStatus_CODE_SUCCESS)}, nil
}

// PreBind writes the chosen node into the annotation chosen of the pod; the host makes the patch.
func (p *rule) PreBind(_ context.Context, request *pb.PreBindRequest) (*pb.PreBindResponse, error) {
	answer := &pb.PreBindResponse{Ctx: decided(p.begin(request.Ctx), pb.PluginStatus_CODE_SUCCESS)}
	if len(request.Patched) > 0 {
		if patched := request.Patched[0]; patched.Outcome != pb.PatchResult_OUTCOME_APPLIED {
			answer.Ctx = decided(answer.Ctx, pb.PluginStatus_CODE_ERROR, "the pod was not patched: "+patched.Message)
		}
		return answer, nil
	}
	annotations := map[string]string{chosen: request.NodeName}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return nil, err
	}
	answer.DoneWhenApplied = true
	answer.Patches = []*pb.ObjectPatch{{
		Resource: "pods", Ref: request.Ctx.Pod.GetSummary().GetRef(), MergePatchJson: patch,
		Action: pb.ObjectPatch_ACTION_MERGE,
	}}
	return answer, nil
}

//[/]
//[bind]

// Bind lets the host post the Binding.
func (p *rule) Bind(_ context.Context, request *pb.BindRequest) (*pb.BindResponse, error) {
	return &pb.BindResponse{Ctx: decided(p.begin(request.Ctx), pb.PluginStatus_CODE_SUCCESS), HostBinds: true}, nil
}

//[/]
//[postBind]

// PostBind logs that pods are bound.
func (p *rule) PostBind(_ context.Context, request *pb.PostBindRequest) (*pb.PostBindResponse, error) {
	for _, item := range request.Items {
		log.Printf("%s/%s is bound to %s", item.Pod.GetNamespace(), item.Pod.GetName(), item.NodeName)
		p.places.end(item.CycleId) //[reserve]
	}
	return &pb.PostBindResponse{}, nil
}

//[/]
//[cycle]

// EndCycles drops what the plugin keeps for cycles that are over.
func (p *rule) EndCycles(_ context.Context, request *pb.EndCyclesRequest) (*pb.EndCyclesResponse, error) {
	p.places.ended(request.Ended) //[reserve]
	return &pb.EndCyclesResponse{}, nil
}

//[/]
//[postFilter,preScore,permit,preBind,bind]

// decided puts a decision into the head of an answer.
func decided(reply *pb.ReplyContext, code pb.PluginStatus_Code, reasons ...string) *pb.ReplyContext {
	reply.Status = &pb.PluginStatus{Code: code, Reasons: reasons}
	return reply
}

//[/]
//[reserve]

// remembers is how long a cycle that is over stays known, for a Reserve that comes late.
const remembers = 5 * time.Minute

// places are what cycles hold on nodes.
type places struct {
	mu     sync.Mutex
	limits map[string]int       // by profile: the places of each node
	held   map[string]string    // cycle -> node; "": no place was free
	over   map[string]time.Time // cycle -> when it ended
}

// take gives a place of the node to the cycle. A cycle that asks again gets its first answer.
func (p *places) take(cycle, node, profile string) *pb.PluginStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, isOver := p.over[cycle]; isOver {
		return &pb.PluginStatus{Code: pb.PluginStatus_CODE_ERROR, Reasons: []string{"the cycle is over"}}
	}
	if _, isKnown := p.held[cycle]; !isKnown {
		taken := 0
		for _, other := range p.held {
			if other == node {
				taken++
			}
		}
		if p.held[cycle] = ""; taken < p.limits[profile] {
			p.held[cycle] = node
		}
	}
	if p.held[cycle] == "" {
		reasons := []string{"node(s) have too many pods under way"}
		return &pb.PluginStatus{Code: pb.PluginStatus_CODE_UNSCHEDULABLE, Reasons: reasons}
	}
	return &pb.PluginStatus{Code: pb.PluginStatus_CODE_SUCCESS}
}

// end gives back what a cycle holds. A cycle that is not known counts as ended.
func (p *places) end(cycle string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, cycle)
	for other, at := range p.over {
		if time.Since(at) > remembers {
			delete(p.over, other)
		}
	}
	p.over[cycle] = time.Now()
}

// ended drops the cycles that hold nothing any more. Of the others the host says so itself, by Unreserve.
func (p *places) ended(cycles []*pb.CycleEnd) {
	for _, one := range cycles {
		p.mu.Lock()
		node, isKnown := p.held[one.CycleId]
		p.mu.Unlock()
		if isKnown && (node == "" || one.Outcome == pb.CycleEnd_OUTCOME_BOUND) {
			p.end(one.CycleId)
		}
	}
}

// keep replaces what the cycles hold. The others are over.
func (p *places) keep(live map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for cycle := range p.held {
		p.over[cycle] = time.Now()
	}
	p.held = live
	for cycle := range live {
		delete(p.over, cycle)
	}
}

//[/]

func newPlugin() *rule {
	p := &rule{}
	p.places = places{held: map[string]string{}, over: map[string]time.Time{}} //[reserve]
	return p
}

// descriptor is how the plugin introduces itself to the host.
func descriptor() *pb.PluginDescriptor {
	return &pb.PluginDescriptor{
		Name:    name,
		Version: "0.1.0",
		Points: []pb.ExtensionPoint{
			pb.ExtensionPoint_EXTENSION_POINT_PRE_ENQUEUE,     //[preEnqueue]
			pb.ExtensionPoint_EXTENSION_POINT_QUEUE_SORT,      //[queueSort]
			pb.ExtensionPoint_EXTENSION_POINT_PRE_FILTER,      //[preFilter]
			pb.ExtensionPoint_EXTENSION_POINT_FILTER,          //[filter]
			pb.ExtensionPoint_EXTENSION_POINT_POST_FILTER,     //[postFilter]
			pb.ExtensionPoint_EXTENSION_POINT_PRE_SCORE,       //[preScore]
			pb.ExtensionPoint_EXTENSION_POINT_SCORE,           //[score]
			pb.ExtensionPoint_EXTENSION_POINT_NORMALIZE_SCORE, //[normalizeScore]
			pb.ExtensionPoint_EXTENSION_POINT_RESERVE,         //[reserve]
			pb.ExtensionPoint_EXTENSION_POINT_PERMIT,          //[permit]
			pb.ExtensionPoint_EXTENSION_POINT_PRE_BIND,        //[preBind]
			pb.ExtensionPoint_EXTENSION_POINT_BIND,            //[bind]
			pb.ExtensionPoint_EXTENSION_POINT_POST_BIND,       //[postBind]
		},
		//[score,!normalizeScore]

		// Score answers 0..100, and the score of a node does not depend on the other candidates.
		Normalization: pb.ScoreNormalization_SCORE_NORMALIZATION_NONE,
		//[/]
		//[normalizeScore]

		// NormalizeScore brings the scores into 0..100.
		Normalization: pb.ScoreNormalization_SCORE_NORMALIZATION_RPC,
		//[/]
	}
}

func main() {
	p := newPlugin()
	serve.Plugin(descriptor(), p.configure, func(server *grpc.Server) {
		pb.RegisterQueueServiceServer(server, p)      //[queue]
		pb.RegisterSchedulingServiceServer(server, p) //[cycle]
		pb.RegisterStateServiceServer(server, p)      //[reserve]
	})
}
