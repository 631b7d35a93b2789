// Counter, in Go, over the generated code alone: a small plugin that keeps every rule of the contract. It rejects nodes
// without room for the pod, prefers those with most free cpu, and grants `limit` pods of each profile at a time. A
// granted pod waits at Permit until the next one is granted. Each patch beside this file breaks one rule.
package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	pb "berth.io/plugin/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	name         = "Counter"
	largest      = 64 << 20
	receives     = largest
	modulus      = 1 << 53
	remembered   = 64
	unknownLimit = 4
)

var noRoom = &pb.PluginStatus{Code: pb.PluginStatus_CODE_UNSCHEDULABLE, Reasons: []string{"no room"}}

// node is what is kept of one node.
type node struct {
	name        string
	generation  uint64
	zone        string
	tainted     bool
	allocatable map[string]int64
	requested   map[string]int64
	pods        int64
}

// held is a reservation or a wait. profile: whose limit it counts for; empty: it is only a wait.
type held struct {
	uid, profile string
	waits        bool
}

type counter struct {
	pb.UnimplementedIdentityServiceServer
	pb.UnimplementedStateServiceServer
	pb.UnimplementedSchedulingServiceServer
	credential string
	hello      *pb.HandshakeResponse
	mu         sync.Mutex
	named      []string
	attached   string
	limits     map[string]int
	handle     *pb.HandleEndpoint
	connection *grpc.ClientConn
	version    *pb.StateVersion
	nodes      map[uint32]*node
	pods       map[string]*pb.PodSummary
	held       map[string]*held
	answered   map[string]pb.PluginStatus_Code
	over       map[string]bool
}

// --- identity -----------------------------------------------------------------------------------------------------

func (c *counter) Handshake(_ context.Context, request *pb.HandshakeRequest) (*pb.HandshakeResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credential != "" && subtle.ConstantTimeCompare([]byte(request.Credential), []byte(c.credential)) == 0 {
		return nil, status.Error(codes.Unauthenticated, "another credential")
	}
	c.named = append(c.named, request.AttachmentId)
	c.named = c.named[max(0, len(c.named)-remembered):]
	return c.hello, nil
}

func (c *counter) Configure(_ context.Context, request *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.named, request.AttachmentId) {
		return nil, status.Error(codes.PermissionDenied, "no Handshake named this id")
	}
	if !request.Accepted {
		return &pb.ConfigureResponse{}, nil
	}
	limits := map[string]int{}
	for _, plugin := range request.Plugins {
		limit := float64(unknownLimit)
		if given, isGiven := plugin.Args.GetFields()["limit"]; isGiven {
			limit = given.GetNumberValue()
		}
		if limit < 1 || float64(int(limit)) != limit {
			return &pb.ConfigureResponse{Error: "limit: must be a whole number above 0"}, nil
		}
		limits[plugin.Profile] = int(limit)
	}
	if request.Trial {
		return &pb.ConfigureResponse{}, nil
	}
	var connection *grpc.ClientConn
	if request.Handle != nil {
		var err error
		plaintext := grpc.WithTransportCredentials(insecure.NewCredentials())
		if connection, err = grpc.NewClient(request.Handle.Target, plaintext); err != nil {
			return &pb.ConfigureResponse{Error: err.Error()}, nil
		}
	}
	c.limits, c.attached, c.handle, c.connection = limits, request.AttachmentId, request.Handle, connection
	return &pb.ConfigureResponse{}, nil
}

func (c *counter) Probe(_ context.Context, request *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	return &pb.ProbeResponse{Ready: true, InstanceId: c.hello.InstanceId}, nil
}

func (c *counter) Drain(context.Context, *pb.DrainRequest) (*pb.DrainResponse, error) {
	return &pb.DrainResponse{}, nil
}

// --- state --------------------------------------------------------------------------------------------------------

func (c *counter) SyncState(stream pb.StateService_SyncStateServer) error {
	whole := &pb.StateDelta{}
	for sequence := uint32(0); ; sequence++ {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.InvalidArgument, "the last chunk is missing")
		} else if err != nil {
			return err
		} else if request.Sequence != sequence {
			return status.Errorf(codes.InvalidArgument, "chunk %d came in the place of %d", request.Sequence, sequence)
		}
		chunk := request.Chunk
		chunk.Upserts = append(whole.Upserts, chunk.Upserts...)
		chunk.Removed = append(whole.Removed, chunk.Removed...)
		whole = chunk
		if request.Last {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	isHeld := c.apply(whole)
	return stream.SendAndClose(&pb.SyncStateResponse{Have: c.version, NeedFull: !isHeld})
}

func same(one, other *pb.StateVersion) bool {
	return one != nil && other != nil && one.Epoch == other.Epoch && one.Generation == other.Generation
}

// apply brings the copy to the delta's target; false: the copy is as it was.
func (c *counter) apply(delta *pb.StateDelta) bool {
	nodes := map[uint32]*node{}
	if delta.Base != nil {
		if same(c.version, delta.Target) {
			return true
		} else if !same(c.version, delta.Base) {
			return false
		}
		for index, one := range c.nodes {
			nodes[index] = one
		}
	}
	for _, index := range delta.Removed {
		delete(nodes, index)
	}
	for _, sent := range delta.Upserts {
		changed := &node{}
		if known := nodes[sent.Index]; known != nil {
			*changed = *known
		}
		changed.generation = sent.Generation
		if nodes[sent.Index] == nil {
			changed.name = sent.Name
		}
		if changed.name == "" || sent.Name != "" && sent.Name != changed.name {
			return false
		}
		if sent.Summary != nil {
			changed.allocatable = sent.Summary.Allocatable
			changed.zone = sent.Summary.Labels["topology.kubernetes.io/zone"]
			changed.tainted = len(sent.Summary.Taints) > 0
		}
		if sent.Usage != nil {
			changed.requested, changed.pods = sent.Usage.Requested, int64(sent.Usage.PodCount)
		}
		nodes[sent.Index] = changed
	}
	sum := uint64(0)
	for _, one := range nodes {
		sum = (sum + one.generation) % modulus
	}
	if uint32(len(nodes)) != delta.NodeCount || sum != delta.GenerationSum {
		return false
	}
	c.nodes, c.version = nodes, delta.Target
	return true
}

func (c *counter) Reconcile(stream pb.StateService_ReconcileServer) error {
	var live []*pb.LiveReservation
	for sequence, last := uint32(0), false; ; sequence++ {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) && last {
			break
		} else if errors.Is(err, io.EOF) {
			return status.Error(codes.InvalidArgument, "the last page is missing")
		} else if err != nil {
			return err
		} else if page.Sequence != sequence || last {
			return status.Errorf(codes.InvalidArgument, "page %d came in the place of %d", page.Sequence, sequence)
		}
		live, last = append(live, page.Live...), page.Last
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := &pb.ReconcileResponse{}
	now := map[string]*held{}
	for _, item := range live {
		known := c.held[item.CycleId]
		if known == nil && len(item.PluginToken) == 0 && !item.WaitingOnPermit {
			answer.UnknownCycleIds = append(answer.UnknownCycleIds, item.CycleId)
			continue
		}
		if known == nil {
			known = &held{uid: item.Pod.Uid}
			if len(item.PluginToken) > 0 {
				known.profile = item.Profile
			}
		}
		known.waits = item.WaitingOnPermit
		now[item.CycleId] = known
	}
	for id := range c.held {
		c.over[id] = now[id] == nil
	}
	c.held = now
	return stream.SendAndClose(answer)
}

// --- cycles -------------------------------------------------------------------------------------------------------

// begin does what every call of a cycle begins with. It returns the head of the answer, and the pod; nil: the head says
// what is missing.
func (c *counter) begin(ctx *pb.CallContext) (*pb.ReplyContext, *pb.PodSummary) {
	reply := &pb.ReplyContext{CycleId: ctx.CycleId}
	c.end(ctx.Ended)
	if ctx.Delta != nil {
		c.apply(ctx.Delta)
	}
	if !same(c.version, ctx.Version) {
		reply.Missing = append(reply.Missing, pb.Missing_MISSING_STATE)
		reply.Have = c.version
	}
	if ctx.Pod.GetComplete() {
		if len(c.pods) >= 4096 {
			clear(c.pods)
		}
		c.pods[ctx.CycleId] = ctx.Pod.Summary
	}
	pod := c.pods[ctx.CycleId]
	if pod == nil {
		reply.Missing = append(reply.Missing, pb.Missing_MISSING_POD)
	}
	if reply.Missing != nil {
		return reply, nil
	}
	return reply, pod
}

// end drops what is kept for cycles that are over. Those that are not bound end by Unreserve.
func (c *counter) end(ended []*pb.CycleEnd) {
	for _, one := range ended {
		delete(c.pods, one.CycleId)
		if one.Outcome == pb.CycleEnd_OUTCOME_BOUND {
			delete(c.held, one.CycleId)
		}
	}
}

// fits returns whether a node can take a pod.
func (n *node) fits(pod *pb.PodSummary) bool {
	if n.tainted && len(pod.Tolerations) == 0 || n.pods >= n.allocatable["pods"] {
		return false
	}
	for _, resource := range []string{"cpu", "memory"} {
		if n.requested[resource]+pod.Requests[resource] > n.allocatable[resource] {
			return false
		}
	}
	return true
}

// chosen returns the indices of a set in ascending order.
func (c *counter) chosen(set *pb.NodeSet) []uint32 {
	var indices []uint32
	for index := range c.nodes {
		at := int(index / 8)
		listed := at < len(set.GetBitmap()) && set.Bitmap[at]>>(index%8)&1 == 1
		if listed != set.GetComplement() {
			indices = append(indices, index)
		}
	}
	slices.Sort(indices)
	return indices
}

func (c *counter) Filter(_ context.Context, request *pb.FilterRequest) (*pb.FilterResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, pod := c.begin(request.Ctx)
	answer := &pb.FilterResponse{Ctx: reply}
	if pod == nil {
		return answer, nil
	}
	var bitmap []byte
	for _, index := range c.chosen(request.Candidates) {
		if !c.nodes[index].fits(pod) {
			for len(bitmap) <= int(index/8) {
				bitmap = append(bitmap, 0)
			}
			bitmap[index/8] |= 1 << (index % 8)
		}
	}
	if bitmap != nil {
		group := &pb.NodeGroup{Status: noRoom, Nodes: &pb.NodeSet{Bitmap: bitmap}}
		answer.Verdicts = &pb.NodeVerdicts{Rejected: []*pb.NodeGroup{group}}
	}
	return answer, nil
}

func (c *counter) SimulateFilter(
	_ context.Context, request *pb.SimulateFilterRequest,
) (*pb.SimulateFilterResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, pod := c.begin(request.Ctx)
	answer := &pb.SimulateFilterResponse{Ctx: reply}
	if pod == nil {
		return answer, nil
	}
	for _, scenario := range request.Scenarios {
		assumed := *c.nodes[scenario.Node.GetNodeIndex()]
		assumed.requested = scenario.Node.Usage.GetRequested()
		assumed.pods = int64(scenario.Node.Usage.GetPodCount())
		said := &pb.PluginStatus{Code: pb.PluginStatus_CODE_SUCCESS}
		if !assumed.fits(pod) {
			said = noRoom
		}
		answer.Statuses = append(answer.Statuses, said)
	}
	return answer, nil
}

func (c *counter) Score(_ context.Context, request *pb.ScoreRequest) (*pb.ScoreResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, pod := c.begin(request.Ctx)
	answer := &pb.ScoreResponse{Ctx: reply}
	if pod == nil {
		return answer, nil
	}
	answer.Scores = &pb.Scores{}
	for _, index := range c.chosen(request.Candidates) {
		one := c.nodes[index]
		score := max(0, one.allocatable["cpu"]-one.requested["cpu"]-pod.Requests["cpu"])
		if one.zone == "zone-1" {
			score += 1000
		}
		answer.Scores.Dense = append(answer.Scores.Dense, score)
	}
	return answer, nil
}

func (c *counter) Reserve(_ context.Context, request *pb.ReserveRequest) (*pb.ReserveResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, pod := c.begin(request.Ctx)
	answer := &pb.ReserveResponse{Ctx: reply}
	if pod == nil {
		return answer, nil
	}
	id, profile := request.Ctx.CycleId, request.Ctx.Profile
	reply.Status = &pb.PluginStatus{Code: pb.PluginStatus_CODE_ERROR}
	if c.over[id] {
		return answer, nil
	}
	if _, isKnown := c.answered[id]; !isKnown {
		taken := 0
		for _, one := range c.held {
			if one.profile == profile {
				taken++
			}
		}
		c.answered[id] = pb.PluginStatus_CODE_UNSCHEDULABLE
		if taken < c.limits[profile] {
			c.answered[id] = pb.PluginStatus_CODE_SUCCESS
			c.held[id] = &held{uid: pod.Ref.Uid, profile: profile}
			c.allowOthers(id)
		}
	}
	reply.Status.Code = c.answered[id]
	if reply.Status.Code == pb.PluginStatus_CODE_SUCCESS {
		reply.PluginToken = []byte("granted")
	}
	return answer, nil
}

func (c *counter) Permit(_ context.Context, request *pb.PermitRequest) (*pb.PermitResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, pod := c.begin(request.Ctx)
	answer := &pb.PermitResponse{Ctx: reply}
	if pod == nil {
		return answer, nil
	}
	if c.held[request.Ctx.CycleId] == nil {
		c.held[request.Ctx.CycleId] = &held{uid: pod.Ref.Uid}
	}
	c.held[request.Ctx.CycleId].waits = true
	reply.Status = &pb.PluginStatus{Code: pb.PluginStatus_CODE_WAIT}
	answer.WaitTimeout = durationpb.New(time.Minute)
	return answer, nil
}

// allowOthers allows the pods that wait, but for that of a cycle. Reserve does not wait for the host.
func (c *counter) allowOthers(cycle string) {
	request := &pb.DecideWaitingPodsRequest{Plugin: name}
	for id, one := range c.held {
		if one.waits && id != cycle {
			one.waits = false
			request.Decisions = append(request.Decisions, &pb.WaitDecision{
				PodUid: one.uid, CycleId: id, Verdict: pb.WaitDecision_VERDICT_ALLOW,
			})
		}
	}
	if request.Decisions == nil || c.connection == nil {
		return
	}
	host := pb.NewHandleServiceClient(c.connection)
	ctx := metadata.AppendToOutgoingContext(
		context.Background(), "authorization", "Bearer "+c.handle.Token, "berth-plugin", name)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, _ = host.DecideWaitingPods(ctx, request)
	}()
}

func (c *counter) Unreserve(_ context.Context, request *pb.UnreserveRequest) (*pb.UnreserveResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := &pb.UnreserveResponse{}
	for _, item := range request.Items {
		delete(c.held, item.CycleId)
		c.over[item.CycleId] = true
		answer.DoneCycleIds = append(answer.DoneCycleIds, item.CycleId)
	}
	return answer, nil
}

func (c *counter) PostBind(_ context.Context, request *pb.PostBindRequest) (*pb.PostBindResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, item := range request.Items {
		delete(c.held, item.CycleId)
	}
	return &pb.PostBindResponse{}, nil
}

func (c *counter) EndCycles(_ context.Context, request *pb.EndCyclesRequest) (*pb.EndCyclesResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(request.Ended)
	return &pb.EndCyclesResponse{}, nil
}

// --- the server ---------------------------------------------------------------------------------------------------

// check refuses a request whose metadata differs from it, and one of another attachment.
func (c *counter) check(ctx context.Context, request any, isAttached bool) error {
	profile := ""
	call, isOfCycle := request.(interface{ GetCtx() *pb.CallContext })
	if isOfCycle {
		request, profile = call.GetCtx(), call.GetCtx().GetProfile()
	}
	id, plugin := request.(interface{ GetAttachmentId() string }).GetAttachmentId(), name
	if about, is := request.(interface{ GetPlugin() string }); is {
		plugin = about.GetPlugin()
	}
	for key, said := range map[string]string{"berth-attachment-id": id, "berth-plugin": plugin} {
		for _, beside := range metadata.ValueFromIncomingContext(ctx, key) {
			if beside != said {
				return status.Errorf(codes.InvalidArgument, "the metadata %s differs from the message", key)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if isAttached && (id == "" || id != c.attached) {
		return status.Error(codes.PermissionDenied, "another attachment")
	}
	if isAttached && plugin != name {
		return status.Errorf(codes.InvalidArgument, "Configure named no plugin %q", plugin)
	}
	if isAttached && isOfCycle && c.limits[profile] == 0 {
		return status.Errorf(codes.InvalidArgument, "Configure named no profile %q", profile)
	}
	return nil
}

// checked is a stream whose every message is checked.
type checked struct {
	grpc.ServerStream
	counter *counter
}

func (c checked) RecvMsg(message any) error {
	if err := c.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return c.counter.check(c.Context(), message, true)
}

func main() {
	c := &counter{
		credential: os.Getenv("BERTH_PLUGIN_CREDENTIAL"),
		nodes:      map[uint32]*node{}, pods: map[string]*pb.PodSummary{}, held: map[string]*held{},
		answered: map[string]pb.PluginStatus_Code{}, over: map[string]bool{},
	}
	me := &pb.PluginDescriptor{
		Name: name,
		Points: []pb.ExtensionPoint{
			pb.ExtensionPoint_EXTENSION_POINT_FILTER, pb.ExtensionPoint_EXTENSION_POINT_SCORE,
			pb.ExtensionPoint_EXTENSION_POINT_RESERVE, pb.ExtensionPoint_EXTENSION_POINT_PERMIT,
			pb.ExtensionPoint_EXTENSION_POINT_POST_BIND,
		},
		NodeMode: pb.NodeMode_NODE_MODE_SNAPSHOT,
		Needs: []*pb.DeclaredNeed{{
			Kind: pb.DeclaredNeed_KIND_NODE_SUMMARY, LabelPrefixes: []string{"topology.kubernetes.io/"},
		}},
		PodSensitivity: pb.PodSensitivity_POD_SENSITIVITY_NODE,
		DependsOn:      pb.DependsOn_DEPENDS_ON_ROW,
		Normalization:  pb.ScoreNormalization_SCORE_NORMALIZATION_HOST_MAX,
		HandleClient:   true,
	}
	c.hello = &pb.HandshakeResponse{
		Supported: []*pb.ContractVersion{{Major: 1}}, Plugins: []*pb.PluginDescriptor{me},
		Features: []string{"configure-trial"}, InstanceId: rand.Text(), StartedAt: timestamppb.Now(),
		MaxMessageBytes: largest,
	}
	unary := func(ctx context.Context, request any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		isAttached := call.FullMethod != pb.IdentityService_Handshake_FullMethodName &&
			call.FullMethod != pb.IdentityService_Configure_FullMethodName
		if err := c.check(ctx, request, isAttached); err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
	stream := func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return next(srv, checked{s, c})
	}
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(receives), grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream))
	pb.RegisterIdentityServiceServer(server, c)
	pb.RegisterStateServiceServer(server, c)
	pb.RegisterSchedulingServiceServer(server, c)
	address := os.Getenv("BERTH_PLUGIN_ENDPOINT")
	path := strings.TrimPrefix(address, "unix://")
	_ = os.Remove(path) // a process that was killed left it
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	line, _ := json.Marshal(map[string]string{"protocol": "berth/1", "address": address})
	fmt.Println(string(line))
	go func() { // this process ends with the one that started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
