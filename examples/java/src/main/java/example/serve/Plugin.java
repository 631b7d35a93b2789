package example.serve;

import com.google.gson.Gson;
import com.google.protobuf.Message;
import com.google.protobuf.Struct;
import com.google.protobuf.Timestamp;
import io.berth.plugin.v1.ConfigureRequest;
import io.berth.plugin.v1.ConfigureResponse;
import io.berth.plugin.v1.ContractVersion;
import io.berth.plugin.v1.DrainRequest;
import io.berth.plugin.v1.DrainResponse;
import io.berth.plugin.v1.HandshakeRequest;
import io.berth.plugin.v1.HandshakeResponse;
import io.berth.plugin.v1.IdentityServiceGrpc;
import io.berth.plugin.v1.PluginArgs;
import io.berth.plugin.v1.PluginDescriptor;
import io.berth.plugin.v1.ProbeRequest;
import io.berth.plugin.v1.ProbeResponse;
import io.grpc.BindableService;
import io.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerInterceptors;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.Collectors;

/** What every plugin needs beside its decisions: the introduction to the host, and the server. */
public final class Plugin extends IdentityServiceGrpc.IdentityServiceImplBase implements ServerInterceptor {
  private final HandshakeResponse hello;
  private final Consumer<ConfigureRequest> configure;
  private final ArrayDeque<String> named = new ArrayDeque<>(); // the ids that Handshakes named, the newest last
  private String attached = ""; // the id of the last Configure that was accepted
  private Set<String> profiles = Set.of(); // of that Configure

  private Plugin(PluginDescriptor me, Consumer<ConfigureRequest> configure) {
    this.configure = configure;
    // Without max_message_bytes the limit is 4 MiB, as that of grpc-java. Who sets more here sets maxInboundMessageSize.
    hello = HandshakeResponse.newBuilder()
        .addSupported(ContractVersion.newBuilder().setMajor(1))
        .addPlugins(me)
        .setInstanceId(UUID.randomUUID().toString())
        .setStartedAt(Timestamp.newBuilder().setSeconds(Instant.now().getEpochSecond()))
        .build();
  }

  /**
   * Serves one plugin until the host ends, or SIGTERM.
   *
   * @param configure takes a request that the host accepted; the text of its IllegalArgumentException goes to the operator
   * @param services those of the plugin's points
   */
  public static void serve(PluginDescriptor me, Consumer<ConfigureRequest> configure, BindableService... services)
      throws IOException, InterruptedException {
    Plugin plugin = new Plugin(me, configure);
    String endpoint = System.getenv().getOrDefault("BERTH_PLUGIN_ENDPOINT", "");
    NettyServerBuilder builder = listeningAt(endpoint).directExecutor(); // no call waits for anything
    builder.addService(ServerInterceptors.intercept(plugin, plugin));
    for (BindableService service : services) {
      builder.addService(ServerInterceptors.intercept(service, plugin));
    }
    Server server = builder.build().start();
    String address = server.getListenSockets().get(0) instanceof InetSocketAddress bound
        ? endpoint.substring(0, endpoint.lastIndexOf(':') + 1) + bound.getPort()
        : endpoint;
    String cookie = System.getenv("BERTH_PLUGIN_COOKIE");
    System.out.println(new Gson().toJson(Map.of("protocol", "berth/1", "address", address,
        "instance_id", plugin.hello.getInstanceId(), "cookie", cookie == null ? "" : cookie)));
    if (cookie != null) { // a child: the host holds the other end of standard input, and ends with it
      System.in.transferTo(OutputStream.nullOutputStream());
      server.shutdownNow();
    }
    server.awaitTermination();
    System.exit(0); // the event loops are no daemons
  }

  /** Reads the arguments of each profile. A plugin answers a call by those of the call's profile. */
  public static <T> Map<String, T> byProfile(ConfigureRequest request, Function<Struct, T> read) {
    Map<String, T> found = new HashMap<>();
    for (PluginArgs plugin : request.getPluginsList()) {
      found.put(plugin.getProfile(), read.apply(plugin.getArgs()));
    }
    return found;
  }

  /** Answers a call. */
  public static <T> void answer(StreamObserver<T> to, T message) {
    to.onNext(message);
    to.onCompleted();
  }

  @Override
  public synchronized void handshake(HandshakeRequest request, StreamObserver<HandshakeResponse> to) {
    String secret = System.getenv("BERTH_PLUGIN_CREDENTIAL");
    if (secret != null && !MessageDigest.isEqual(bytes(secret), bytes(request.getCredential()))) {
      to.onError(Status.UNAUTHENTICATED
          .withDescription("the credential is not the one in BERTH_PLUGIN_CREDENTIAL").asException());
      return;
    }
    named.addLast(request.getAttachmentId());
    if (named.size() > 64) {
      named.removeFirst();
    }
    answer(to, hello);
  }

  @Override
  public synchronized void configure(ConfigureRequest request, StreamObserver<ConfigureResponse> to) {
    String id = request.getAttachmentId();
    if (!named.contains(id)) {
      to.onError(Status.PERMISSION_DENIED.withDescription("no Handshake named this attachment_id").asException());
      return;
    }
    ConfigureResponse.Builder answer = ConfigureResponse.newBuilder();
    if (request.getAccepted()) {
      try {
        configure.accept(request);
        attached = id;
        profiles = request.getPluginsList().stream().map(PluginArgs::getProfile).collect(Collectors.toSet());
      } catch (IllegalArgumentException wrong) {
        answer.setError(wrong.getMessage());
      }
    } else if (attached.equals(id)) {
      attached = "";
    }
    answer(to, answer.build());
  }

  @Override
  public void probe(ProbeRequest request, StreamObserver<ProbeResponse> to) {
    answer(to, ProbeResponse.newBuilder().setReady(true).setInstanceId(hello.getInstanceId()).build());
  }

  @Override
  public void drain(DrainRequest request, StreamObserver<DrainResponse> to) {
    answer(to, DrainResponse.getDefaultInstance());
  }

  /**
   * Refuses every message of another attachment than the present one, in every call after Configure, or about a plugin or
   * a profile that Configure did not name; and every message whose metadata names another attachment or plugin: an
   * interceptor may have read the metadata.
   */
  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    String method = call.getMethodDescriptor().getBareMethodName();
    boolean introduces = "Handshake".equals(method) || "Configure".equals(method);
    return new SimpleForwardingServerCallListener<>(next.startCall(call, headers)) {
      private boolean refused;

      @Override
      public void onMessage(Q message) {
        Status problem = refused ? null : problem((Message) message, headers, introduces);
        if (problem != null) {
          refused = true;
          call.close(problem, new Metadata());
        }
        if (!refused) {
          super.onMessage(message);
        }
      }

      @Override
      public void onHalfClose() {
        if (!refused) {
          super.onHalfClose();
        }
      }
    };
  }

  /** Returns why a message is refused; null: it is not. */
  private synchronized Status problem(Message message, Metadata headers, boolean introduces) {
    var ctx = message.getDescriptorForType().findFieldByName("ctx");
    Message named = ctx == null ? message : (Message) message.getField(ctx);
    for (String name : new String[] {"attachment_id", "plugin"}) {
      var field = named.getDescriptorForType().findFieldByName(name);
      String key = "berth-" + name.replace('_', '-');
      Iterable<String> sent = headers.getAll(Metadata.Key.of(key, Metadata.ASCII_STRING_MARSHALLER));
      if (field == null || sent == null) {
        continue;
      }
      for (String beside : sent) {
        if (!beside.equals(named.getField(field))) {
          return Status.INVALID_ARGUMENT.withDescription("the metadata " + key + " differs from the request");
        }
      }
    }
    Object id = named.getField(named.getDescriptorForType().findFieldByName("attachment_id"));
    if (!introduces && (attached.isEmpty() || !attached.equals(id))) {
      return Status.PERMISSION_DENIED.withDescription(
          "the attachment_id is not that of the last Configure that was accepted");
    }
    var plugin = named.getDescriptorForType().findFieldByName("plugin");
    var profile = named.getDescriptorForType().findFieldByName("profile");
    if ((plugin != null && !hello.getPlugins(0).getName().equals(named.getField(plugin)))
        || (profile != null && !profiles.contains(named.getField(profile)))) {
      return Status.INVALID_ARGUMENT.withDescription("the last Configure named no such plugin or profile");
    }
    return null;
  }

  /** Returns a builder that listens at `unix:///path` or `host:port`. */
  private static NettyServerBuilder listeningAt(String endpoint) throws IOException {
    if (endpoint.startsWith("unix://")) {
      Path path = Path.of(endpoint.substring("unix://".length()));
      removeDead(path);
      return NettyServerBuilder.forAddress(new DomainSocketAddress(path.toFile()))
          .channelType(EpollServerDomainSocketChannel.class)
          .bossEventLoopGroup(new EpollEventLoopGroup(1))
          .workerEventLoopGroup(new EpollEventLoopGroup(1));
    }
    int colon = endpoint.lastIndexOf(':');
    try {
      String host = endpoint.substring(0, colon).replaceAll("^\\[|\\]$", "");
      return NettyServerBuilder.forAddress(new InetSocketAddress(host, Integer.parseInt(endpoint.substring(colon + 1))));
    } catch (IndexOutOfBoundsException | IllegalArgumentException wrong) {
      throw new IOException(
          "BERTH_PLUGIN_ENDPOINT \"" + endpoint + "\": set it to unix:///absolute/path or host:port", wrong);
    }
  }

  /** Removes the socket that a dead process left. */
  private static void removeDead(Path path) throws IOException {
    try (SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX)) {
      channel.connect(UnixDomainSocketAddress.of(path));
    } catch (IOException nobodyListens) {
      Files.deleteIfExists(path);
    }
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
