// Package serve holds what every plugin needs beside its decisions: the introduction to the host, and the server.
package serve

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	pb "berth.io/plugin/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// identity answers the calls about the attachment. Configure of the plugin gets every request that the host accepted;
// its error goes to the operator.
type identity struct {
	pb.UnimplementedIdentityServiceServer
	hello     *pb.HandshakeResponse
	configure func(*pb.ConfigureRequest) error
	mu        sync.Mutex
	named     []string // the ids that Handshakes named, the newest last
	attached  string   // the id of the last Configure that was accepted
	profiles  []string // of that Configure
}

func (i *identity) Handshake(_ context.Context, request *pb.HandshakeRequest) (*pb.HandshakeResponse, error) {
	secret := os.Getenv("BERTH_PLUGIN_CREDENTIAL")
	if secret != "" && subtle.ConstantTimeCompare([]byte(request.Credential), []byte(secret)) == 0 {
		return nil, status.Error(codes.Unauthenticated, "the credential is not the one in BERTH_PLUGIN_CREDENTIAL")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.named = append(i.named, request.AttachmentId)
	i.named = i.named[max(0, len(i.named)-64):]
	return i.hello, nil
}

func (i *identity) Configure(_ context.Context, request *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !slices.Contains(i.named, request.AttachmentId) {
		return nil, status.Error(codes.PermissionDenied, "no Handshake named this attachment_id")
	}
	if request.Accepted {
		if err := i.configure(request); err != nil {
			return &pb.ConfigureResponse{Error: err.Error()}, nil
		}
		i.attached = request.AttachmentId
		i.profiles = nil
		for _, plugin := range request.Plugins {
			i.profiles = append(i.profiles, plugin.Profile)
		}
	}
	return &pb.ConfigureResponse{}, nil
}

func (i *identity) Probe(context.Context, *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	return &pb.ProbeResponse{Ready: true, InstanceId: i.hello.InstanceId}, nil
}

func (i *identity) Drain(context.Context, *pb.DrainRequest) (*pb.DrainResponse, error) {
	return &pb.DrainResponse{}, nil
}

// named returns whom a request names, by the keys of the metadata of its call.
func named(request any) map[string]string {
	if call, isOfCycle := request.(interface{ GetCtx() *pb.CallContext }); isOfCycle {
		request = call.GetCtx()
	}
	found := map[string]string{}
	if about, is := request.(interface{ GetAttachmentId() string }); is {
		found["berth-attachment-id"] = about.GetAttachmentId()
	}
	if about, is := request.(interface{ GetPlugin() string }); is {
		found["berth-plugin"] = about.GetPlugin()
	}
	return found
}

// agree refuses a request whose metadata names another attachment or plugin: an interceptor may have read the metadata.
func agree(ctx context.Context, request any) error {
	for key, name := range named(request) {
		for _, beside := range metadata.ValueFromIncomingContext(ctx, key) {
			if beside != name {
				return status.Errorf(codes.InvalidArgument, "the metadata %s differs from the request", key)
			}
		}
	}
	return nil
}

// check refuses a request unless it names the last attachment that was accepted, and the plugin and a profile of it.
func (i *identity) check(request any) error {
	id := named(request)["berth-attachment-id"]
	plugin, isAbout := named(request)["berth-plugin"]
	call, isOfCycle := request.(interface{ GetCtx() *pb.CallContext })
	i.mu.Lock()
	defer i.mu.Unlock()
	if id == "" || id != i.attached {
		return status.Error(codes.PermissionDenied, "the attachment_id is not that of the last Configure that was accepted")
	}
	if isAbout && plugin != i.hello.Plugins[0].Name {
		return status.Errorf(codes.InvalidArgument, "the last Configure named no plugin %q", plugin)
	}
	if isOfCycle && !slices.Contains(i.profiles, call.GetCtx().GetProfile()) {
		return status.Errorf(codes.InvalidArgument, "the last Configure named no profile %q", call.GetCtx().GetProfile())
	}
	return nil
}

// checkedStream checks every message of a stream.
type checkedStream struct {
	grpc.ServerStream
	identity *identity
}

func (c checkedStream) RecvMsg(message any) error {
	if err := c.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	if err := agree(c.Context(), message); err != nil {
		return err
	}
	return c.identity.check(message)
}

// Plugin serves one plugin until the host ends, or until a signal ends the process. `register` adds the services of the
// plugin's points to the server.
func Plugin(me *pb.PluginDescriptor, configure func(*pb.ConfigureRequest) error, register func(*grpc.Server)) {
	i := &identity{configure: configure, hello: &pb.HandshakeResponse{
		Supported: []*pb.ContractVersion{{Major: 1}}, Plugins: []*pb.PluginDescriptor{me},
		InstanceId: rand.Text(), StartedAt: timestamppb.Now(), MaxMessageBytes: 64 << 20,
	}}
	unary := func(ctx context.Context, request any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := agree(ctx, request); err != nil {
			return nil, err
		}
		// Handshake and Configure are about attachments that are not there yet.
		if call.FullMethod != pb.IdentityService_Handshake_FullMethodName &&
			call.FullMethod != pb.IdentityService_Configure_FullMethodName {
			if err := i.check(request); err != nil {
				return nil, err
			}
		}
		return next(ctx, request)
	}
	stream := func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return next(srv, checkedStream{s, i})
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream))
	pb.RegisterIdentityServiceServer(server, i)
	register(server)
	listener, address := listen(os.Getenv("BERTH_PLUGIN_ENDPOINT"))
	cookie, isChild := os.LookupEnv("BERTH_PLUGIN_COOKIE")
	line, _ := json.Marshal(map[string]string{
		"protocol": "berth/1", "address": address, "instance_id": i.hello.InstanceId, "cookie": cookie,
	})
	fmt.Println(string(line))
	if isChild {
		go func() { // The host holds the other end: this process ends with the host.
			_, _ = io.Copy(io.Discard, os.Stdin)
			server.Stop()
		}()
	}
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}

// listen opens `unix:///path` or `host:port`, and returns the address that is then in use.
func listen(endpoint string) (net.Listener, string) {
	network, address := "tcp", endpoint
	if path, isUnix := strings.CutPrefix(endpoint, "unix://"); isUnix {
		network, address = "unix", path
		if connection, err := net.Dial(network, path); err == nil {
			connection.Close()
		} else {
			_ = os.Remove(path) // a dead process left it
		}
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		log.Fatalf("BERTH_PLUGIN_ENDPOINT %q: %v; set it to unix:///absolute/path or host:port", endpoint, err)
	}
	if network == "tcp" {
		endpoint = listener.Addr().String()
	}
	return listener, endpoint
}
