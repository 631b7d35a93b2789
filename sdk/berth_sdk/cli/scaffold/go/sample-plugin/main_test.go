// SamplePlugin, asked in this process: no server, no cluster.
package main

import (
	"bytes"         //[queueSort]
	"context"       //[preEnqueue,queueSort,preFilter,filter,postFilter,preScore,score,reserve,permit,preBind,bind,postBind]
	"encoding/json" //[preBind]
	"io"            //[reserve]
	"reflect"       //[preFilter,filter,score]
	"testing"

	pb "example.com/sample-plugin/plugin/v1"
	"google.golang.org/grpc"                                 //[reserve]
	"google.golang.org/protobuf/types/known/structpb"        //[reserve]
	"google.golang.org/protobuf/types/known/timestamppb"     //[queueSort]
)

//[cycle]

var nodes = &pb.NodeSet{Names: []string{"n1", "n2", "n3"}} //[preFilter,filter,preScore,score]

// about returns the context of a call about a pod with one annotation.
func about(cycle, annotation, value string) *pb.CallContext {
	pod := &pb.PodSummary{
		Ref:         &pb.ObjectRef{Namespace: "default", Name: "web", Uid: "uid-" + cycle},
		Annotations: map[string]string{annotation: value},
	}
	return &pb.CallContext{
		CycleId: cycle, Plugin: name, Profile: "default-scheduler", Pod: &pb.CyclePod{Summary: pod, Complete: true},
	}
}

//[/]

func TestPluginIsNamedAsInTheConfiguration(t *testing.T) {
	if got := descriptor().Name; got != "SamplePlugin" {
		t.Error(got)
	}
}

//[preEnqueue]

func TestPodThatIsHeldDoesNotEnterTheQueue(t *testing.T) {
	free := &pb.QueuedPod{Summary: &pb.PodSummary{}}
	held := &pb.QueuedPod{Summary: &pb.PodSummary{Annotations: map[string]string{hold: "true"}}}
	request := &pb.PreEnqueueRequest{Pods: []*pb.QueuedPod{free, held}}
	answer, _ := newPlugin().PreEnqueue(context.Background(), request)
	if answer.Statuses[0].Code != pb.PluginStatus_CODE_SUCCESS {
		t.Error("the pod without the annotation is kept out")
	}
	if answer.Statuses[1].Code != pb.PluginStatus_CODE_UNSCHEDULABLE_AND_UNRESOLVABLE {
		t.Error("the pod with the annotation enters")
	}
}

//[/]
//[queueSort]

func TestPodOfHigherPriorityComesFirst(t *testing.T) {
	pod := func(priority int32, seconds int64) *pb.QueuedPod {
		added := &timestamppb.Timestamp{Seconds: seconds}
		return &pb.QueuedPod{Summary: &pb.PodSummary{Priority: priority}, AddedAt: added}
	}
	// In the order in which they are tried.
	pods := []*pb.QueuedPod{pod(2000000000, 9), pod(1, 1), pod(1, 2), pod(0, 0), pod(-5, 0)}
	answer, _ := newPlugin().SortKeys(context.Background(), &pb.SortKeysRequest{Pods: pods})
	for i := 1; i < len(pods); i++ {
		if bytes.Compare(answer.Keys[i-1], answer.Keys[i]) >= 0 {
			t.Errorf("pod %d does not come before pod %d", i-1, i)
		}
	}
}

//[/]
//[preFilter]

func TestAnnotationReducesTheNodes(t *testing.T) {
	request := &pb.PreFilterRequest{Ctx: about("1", only, "n1,n2"), Candidates: nodes}
	answer, _ := newPlugin().PreFilter(context.Background(), request)
	if !reflect.DeepEqual(answer.Eligible.GetNames(), []string{"n1", "n2"}) {
		t.Error(answer.Eligible)
	}
	request.Ctx = about("2", "other", "n1")
	if answer, _ = newPlugin().PreFilter(context.Background(), request); answer.Eligible != nil {
		t.Error(answer.Eligible)
	}
}

//[/]
//[filter]

func TestNodeThatThePodAvoidsIsRejected(t *testing.T) {
	request := &pb.FilterRequest{Ctx: about("1", avoid, "n2"), Candidates: nodes}
	answer, _ := newPlugin().Filter(context.Background(), request)
	if rejected := answer.Verdicts.Rejected[0].Nodes.Names; !reflect.DeepEqual(rejected, []string{"n2"}) {
		t.Error(rejected)
	}
	request.Ctx = about("2", avoid, "")
	if answer, _ = newPlugin().Filter(context.Background(), request); answer.Verdicts != nil {
		t.Error(answer.Verdicts)
	}
}

//[/]
//[postFilter]

func TestPluginLeavesTheSearchForVictimsToOthers(t *testing.T) {
	request := &pb.PostFilterRequest{Ctx: about("1", "other", "")}
	answer, _ := newPlugin().PostFilter(context.Background(), request)
	if answer.Ctx.Status.Code != pb.PluginStatus_CODE_UNSCHEDULABLE {
		t.Error(answer)
	}
}

//[/]
//[preScore]

func TestPodThatIsUnrankedIsNotScored(t *testing.T) {
	request := &pb.PreScoreRequest{Ctx: about("1", unranked, ""), Candidates: nodes}
	answer, _ := newPlugin().PreScore(context.Background(), request)
	if answer.Ctx.Status.Code != pb.PluginStatus_CODE_SKIP {
		t.Error(answer)
	}
	request.Ctx = about("2", "other", "")
	if answer, _ = newPlugin().PreScore(context.Background(), request); answer.Ctx.Status.Code != pb.PluginStatus_CODE_SUCCESS {
		t.Error(answer)
	}
}

//[/]
//[score]

func TestNodeThatThePodPrefersScoresMore(t *testing.T) {
	request := &pb.ScoreRequest{Ctx: about("1", prefer, "n3"), Candidates: nodes}
	answer, _ := newPlugin().Score(context.Background(), request)
	if !reflect.DeepEqual(answer.Scores.Dense, []int64{0, 0, 50}) {
		t.Error(answer.Scores)
	}
}

//[/]
//[normalizeScore]

func TestBestNodeGets100(t *testing.T) {
	request := &pb.NormalizeScoreRequest{Ctx: about("1", "other", ""), Scores: &pb.Scores{Dense: []int64{0, 25, 50}}}
	answer, _ := newPlugin().NormalizeScore(context.Background(), request)
	if !reflect.DeepEqual(answer.Scores.Dense, []int64{0, 50, 100}) {
		t.Error(answer.Scores)
	}
	request.Scores = &pb.Scores{Small: []byte{0, 0}}
	answer, _ = newPlugin().NormalizeScore(context.Background(), request)
	if !reflect.DeepEqual(answer.Scores.Dense, []int64{0, 0}) {
		t.Error(answer.Scores)
	}
}

//[/]
//[reserve]

// configured returns a plugin with so many places on each node.
func configured(podsPerNode float64) (*rule, error) {
	p, args := newPlugin(), map[string]*structpb.Value{"podsPerNode": structpb.NewNumberValue(podsPerNode)}
	plugins := []*pb.PluginArgs{{Name: name, Profile: "default-scheduler", Args: &structpb.Struct{Fields: args}}}
	return p, p.configure(&pb.ConfigureRequest{Plugins: plugins})
}

func reserved(p *rule, cycle string) pb.PluginStatus_Code {
	request := &pb.ReserveRequest{Ctx: about(cycle, "other", ""), NodeName: "n1"}
	answer, _ := p.Reserve(context.Background(), request)
	return answer.Ctx.Status.Code
}

func TestPlaceIsGivenBack(t *testing.T) {
	p, _ := configured(1)
	if reserved(p, "1") != pb.PluginStatus_CODE_SUCCESS || reserved(p, "1") != pb.PluginStatus_CODE_SUCCESS {
		t.Error("the first pod gets no place, or not twice the same one")
	}
	if reserved(p, "2") != pb.PluginStatus_CODE_UNSCHEDULABLE {
		t.Error("the second pod gets a place that is taken")
	}
	items := []*pb.UnreserveItem{{CycleId: "1"}}
	_, _ = p.Unreserve(context.Background(), &pb.UnreserveRequest{Items: items})
	if reserved(p, "3") != pb.PluginStatus_CODE_SUCCESS {
		t.Error("the place was not given back")
	}
	if reserved(p, "1") != pb.PluginStatus_CODE_ERROR {
		t.Error("a cycle that is over gets a place")
	}
}

func TestPlaceOfABoundPodIsFree(t *testing.T) {
	p, _ := configured(1)
	reserved(p, "1")
	bound := []*pb.CycleEnd{{CycleId: "1", Outcome: pb.CycleEnd_OUTCOME_BOUND}}
	_, _ = p.EndCycles(context.Background(), &pb.EndCyclesRequest{Ended: bound})
	if reserved(p, "2") != pb.PluginStatus_CODE_SUCCESS {
		t.Error("the place was not given back")
	}
}

// pages is a stream of Reconcile.
type pages struct {
	grpc.ServerStream
	sent []*pb.ReconcileRequest
}

func (s *pages) Recv() (*pb.ReconcileRequest, error) {
	if len(s.sent) == 0 {
		return nil, io.EOF
	}
	page := s.sent[0]
	s.sent = s.sent[1:]
	return page, nil
}

func (s *pages) SendAndClose(*pb.ReconcileResponse) error { return nil }

func TestReconcileKeepsTheLiveReservationsAlone(t *testing.T) {
	p, _ := configured(1)
	reserved(p, "1")
	live := []*pb.LiveReservation{{CycleId: "2", NodeName: "n2"}}
	if err := p.Reconcile(&pages{sent: []*pb.ReconcileRequest{{Live: live}, {Sequence: 1, Last: true}}}); err != nil {
		t.Error(err)
	}
	if reserved(p, "3") != pb.PluginStatus_CODE_SUCCESS || p.places.held["2"] != "n2" {
		t.Error(p.places.held)
	}
	if err := p.Reconcile(&pages{sent: []*pb.ReconcileRequest{{Sequence: 1, Last: true}}}); err == nil {
		t.Error("a gap in the pages is taken")
	}
}

func TestArgumentThatMakesNoSenseIsRefused(t *testing.T) {
	for _, wrong := range []float64{0, -1, 1.5} {
		if _, err := configured(wrong); err == nil {
			t.Errorf("podsPerNode %v is taken", wrong)
		}
	}
}

//[/]
//[permit]

func TestPodWithTheAnnotationWaits(t *testing.T) {
	request := &pb.PermitRequest{Ctx: about("1", wait, "30"), NodeName: "n1"}
	answer, _ := newPlugin().Permit(context.Background(), request)
	if answer.Ctx.Status.Code != pb.PluginStatus_CODE_WAIT || answer.WaitTimeout.GetSeconds() != 30 {
		t.Error(answer)
	}
	request.Ctx = about("2", wait, "long")
	if answer, _ = newPlugin().Permit(context.Background(), request); answer.Ctx.Status.Code != pb.PluginStatus_CODE_SUCCESS {
		t.Error(answer)
	}
}

//[/]
//[preBind]

func TestChosenNodeIsWrittenToThePod(t *testing.T) {
	request := &pb.PreBindRequest{Ctx: about("1", "other", ""), NodeName: "n1"}
	answer, _ := newPlugin().PreBind(context.Background(), request)
	var patch struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(answer.Patches[0].MergePatchJson, &patch); err != nil {
		t.Fatal(err)
	}
	if patch.Metadata.Annotations[chosen] != "n1" || !answer.DoneWhenApplied {
		t.Error(answer)
	}
	request.Patched = []*pb.PatchResult{{Outcome: pb.PatchResult_OUTCOME_CONFLICT}}
	if answer, _ = newPlugin().PreBind(context.Background(), request); answer.Ctx.Status.Code != pb.PluginStatus_CODE_ERROR {
		t.Error(answer)
	}
}

//[/]
//[bind]

func TestHostPostsTheBinding(t *testing.T) {
	request := &pb.BindRequest{Ctx: about("1", "other", ""), NodeName: "n1"}
	if answer, _ := newPlugin().Bind(context.Background(), request); !answer.HostBinds {
		t.Error(answer)
	}
}

//[/]
//[postBind]

func TestBindingIsAcknowledged(t *testing.T) {
	items := []*pb.PostBindItem{{CycleId: "1", Pod: &pb.ObjectRef{Name: "web"}, NodeName: "n1"}}
	if _, err := newPlugin().PostBind(context.Background(), &pb.PostBindRequest{Items: items}); err != nil {
		t.Error(err)
	}
}

//[/]
