package example.binding;

import com.google.gson.Gson;
import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import com.google.protobuf.Struct;
import example.serve.Plugin;
import io.berth.plugin.v1.*;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * Slots limits how many pods are bound at one time, and lets pods wait for company.
 *
 * <pre>
 * slots.example.com/use: "true"   on the pod: it takes one of the slots until it is bound
 * slots.example.com/wait: "true"  on the pod: it waits until another pod of its namespace takes a slot
 * slots.example.com/slot: "2"     on the pod, before it is bound: the number of its slot, from 1
 * </pre>
 */
public final class Slots extends SchedulingServiceGrpc.SchedulingServiceImplBase {
  private static final String NAME = "Slots";
  private static final Duration LONGEST_WAIT = Duration.newBuilder().setSeconds(30).build();

  private final Cycles cycles = new Cycles();
  private Map<String, Integer> slots = Map.of(); // the argument, by profile
  private ManagedChannel channel; // to HandleService; null: the host offers none
  private HandleServiceGrpc.HandleServiceStub handle;

  synchronized void configure(ConfigureRequest request) {
    Map<String, Integer> read = Plugin.byProfile(request, Slots::numberOfSlots);
    if (channel != null) {
      channel.shutdown();
    }
    channel = null;
    if (request.hasHandle()) {
      channel = Grpc.newChannelBuilder(request.getHandle().getTarget(), InsecureChannelCredentials.create()).build();
      Metadata headers = new Metadata();
      headers.put(key("authorization"), "Bearer " + request.getHandle().getToken());
      headers.put(key("berth-plugin"), NAME);
      handle = HandleServiceGrpc.newStub(channel).withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers));
    }
    slots = read;
  }

  private static Metadata.Key<String> key(String name) {
    return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
  }

  static int numberOfSlots(Struct args) {
    double number = args.containsFields("slots") ? args.getFieldsOrThrow("slots").getNumberValue() : 0;
    if (number < 1 || number != (int) number) {
      throw new IllegalArgumentException("slots: must be a whole number above 0");
    }
    return (int) number;
  }

  private static ReplyContext.Builder decided(CallContext ctx, PluginStatus.Code code, String... reasons) {
    ReplyContext.Builder answer = ReplyContext.newBuilder().setCycleId(ctx.getCycleId());
    answer.getStatusBuilder().setCode(code).addAllReasons(List.of(reasons));
    return answer;
  }

  private static ObjectRef pod(CallContext ctx) {
    return ctx.getPod().getSummary().getRef();
  }

  private static boolean says(CallContext ctx, String annotation) {
    return "true".equals(ctx.getPod().getSummary().getAnnotationsOrDefault(annotation, ""));
  }

  @Override
  public void reserve(ReserveRequest request, StreamObserver<ReserveResponse> to) {
    Plugin.answer(to, ReserveResponse.newBuilder().setCtx(reserved(request)).build());
  }

  private synchronized ReplyContext.Builder reserved(ReserveRequest request) {
    CallContext ctx = request.getCtx();
    String id = ctx.getCycleId();
    cycles.ended(ctx.getEndedList());
    if (cycles.isOver(id)) {
      return decided(ctx, PluginStatus.Code.CODE_ERROR, "the cycle is over");
    }
    if (!says(ctx, "slots.example.com/use")) {
      return decided(ctx, PluginStatus.Code.CODE_SKIP);
    }
    boolean isNew = !cycles.isReserved(id);
    int slot = cycles.reserve(id, pod(ctx), slots.getOrDefault(ctx.getProfile(), 0));
    if (slot == 0) {
      return decided(ctx, PluginStatus.Code.CODE_UNSCHEDULABLE, "no slot is free");
    }
    if (isNew && !request.getTrial().getTentative()) {
      allowOthers(pod(ctx));
    }
    ByteString token = ByteString.copyFromUtf8(Integer.toString(slot));
    return decided(ctx, PluginStatus.Code.CODE_SUCCESS).setPluginToken(token);
  }

  /**
   * Allows the other pods that wait in a namespace. If the call fails, they wait for the next Reserve or for the end of their
   * time. The answer of Reserve does not wait for the host. The call has a context of its own: grpc-java cancels a call that was
   * made in the context of Reserve, when Reserve is answered.
   */
  private void allowOthers(ObjectRef pod) {
    Map<String, String> waiting = cycles.waiting(pod);
    if (waiting.isEmpty() || channel == null) {
      return;
    }
    DecideWaitingPodsRequest.Builder request = DecideWaitingPodsRequest.newBuilder().setPlugin(NAME);
    waiting.forEach((id, uid) ->
        request.addDecisionsBuilder().setCycleId(id).setPodUid(uid).setVerdict(WaitDecision.Verdict.VERDICT_ALLOW));
    Context.ROOT.run(() -> decide(request.build(), waiting.keySet()));
  }

  private void decide(DecideWaitingPodsRequest request, Set<String> waiting) {
    handle.withDeadlineAfter(5, TimeUnit.SECONDS).decideWaitingPods(request, new StreamObserver<>() {
      @Override
      public void onNext(DecideWaitingPodsResponse answer) {
        synchronized (Slots.this) {
          waiting.forEach(cycles::waitsNoMore);
        }
      }

      @Override
      public void onError(Throwable error) {
        System.err.println("the pods that wait could not be allowed: " + error);
      }

      @Override
      public void onCompleted() {}
    });
  }

  @Override
  public synchronized void unreserve(UnreserveRequest request, StreamObserver<UnreserveResponse> to) {
    UnreserveResponse.Builder answer = UnreserveResponse.newBuilder();
    for (UnreserveItem item : request.getItemsList()) {
      cycles.end(item.getCycleId());
      answer.addDoneCycleIds(item.getCycleId());
    }
    Plugin.answer(to, answer.build());
  }

  @Override
  public synchronized void permit(PermitRequest request, StreamObserver<PermitResponse> to) {
    CallContext ctx = request.getCtx();
    PermitResponse.Builder answer = PermitResponse.newBuilder();
    cycles.ended(ctx.getEndedList());
    if (cycles.isOver(ctx.getCycleId())) {
      answer.setCtx(decided(ctx, PluginStatus.Code.CODE_ERROR, "the cycle is over"));
    } else if (says(ctx, "slots.example.com/wait")) {
      cycles.await(ctx.getCycleId(), pod(ctx));
      answer.setCtx(decided(ctx, PluginStatus.Code.CODE_WAIT, "waits for another pod of its namespace"));
      answer.setWaitTimeout(LONGEST_WAIT);
    } else {
      answer.setCtx(decided(ctx, PluginStatus.Code.CODE_SUCCESS));
    }
    Plugin.answer(to, answer.build());
  }

  @Override
  public void preBindPreFlight(PreBindPreFlightRequest request, StreamObserver<PreBindPreFlightResponse> to) {
    CallContext ctx = request.getCtx();
    var code = ctx.getPluginToken().isEmpty() ? PluginStatus.Code.CODE_SKIP : PluginStatus.Code.CODE_SUCCESS;
    Plugin.answer(to, PreBindPreFlightResponse.newBuilder().setCtx(decided(ctx, code)).build());
  }

  /** Writes the number of the slot, which is the token of the cycle, to the pod. */
  @Override
  public void preBind(PreBindRequest request, StreamObserver<PreBindResponse> to) {
    CallContext ctx = request.getCtx();
    PreBindResponse.Builder answer = PreBindResponse.newBuilder();
    answer.setCtx(decided(ctx, PluginStatus.Code.CODE_SUCCESS));
    if (request.getPatchedCount() > 0) {
      PatchResult patched = request.getPatched(0);
      if (patched.getOutcome() != PatchResult.Outcome.OUTCOME_APPLIED) {
        String reason = "the slot could not be written to the pod: " + patched.getMessage();
        answer.setCtx(decided(ctx, PluginStatus.Code.CODE_ERROR, reason));
      }
    } else if (!ctx.getPluginToken().isEmpty()) {
      var annotations = Map.of("slots.example.com/slot", ctx.getPluginToken().toStringUtf8());
      String patch = new Gson().toJson(Map.of("metadata", Map.of("annotations", annotations)));
      answer.setDoneWhenApplied(true).addPatches(ObjectPatch.newBuilder()
          .setResource("pods")
          .setRef(pod(ctx))
          .setMergePatchJson(ByteString.copyFromUtf8(patch))
          .setAction(ObjectPatch.Action.ACTION_MERGE));
    }
    Plugin.answer(to, answer.build());
  }

  @Override
  public synchronized void postBind(PostBindRequest request, StreamObserver<PostBindResponse> to) {
    request.getItemsList().forEach(item -> cycles.end(item.getCycleId()));
    Plugin.answer(to, PostBindResponse.getDefaultInstance());
  }

  @Override
  public synchronized void endCycles(EndCyclesRequest request, StreamObserver<EndCyclesResponse> to) {
    cycles.ended(request.getEndedList());
    Plugin.answer(to, EndCyclesResponse.getDefaultInstance());
  }

  private synchronized List<String> keep(List<LiveReservation> live) {
    return cycles.keep(live);
  }

  /** Collects the pages of Reconcile. */
  final class State extends StateServiceGrpc.StateServiceImplBase {
    @Override
    public StreamObserver<ReconcileRequest> reconcile(StreamObserver<ReconcileResponse> to) {
      List<LiveReservation> live = new ArrayList<>();
      return new StreamObserver<>() {
        private int expected;
        private boolean isComplete;
        private boolean isRefused;

        private void refuse(String why) {
          if (!isRefused) {
            isRefused = true;
            to.onError(Status.INVALID_ARGUMENT.withDescription(why).asException());
          }
        }

        @Override
        public void onNext(ReconcileRequest page) {
          if (isRefused || isComplete || page.getSequence() != expected) {
            refuse("page " + page.getSequence() + " came in place of " + expected);
            return;
          }
          expected++;
          live.addAll(page.getLiveList());
          isComplete = page.getLast();
        }

        @Override
        public void onCompleted() {
          if (!isComplete) {
            refuse("the stream ended before its last page");
          } else if (!isRefused) {
            Plugin.answer(to, ReconcileResponse.newBuilder().addAllUnknownCycleIds(keep(live)).build());
          }
        }

        @Override
        public void onError(Throwable cancelled) {}
      };
    }
  }

  public static void main(String[] unused) throws Exception {
    PluginDescriptor me = PluginDescriptor.newBuilder()
        .setName(NAME)
        .addPoints(ExtensionPoint.EXTENSION_POINT_RESERVE)
        .addPoints(ExtensionPoint.EXTENSION_POINT_PERMIT)
        .addPoints(ExtensionPoint.EXTENSION_POINT_PRE_BIND)
        .addPoints(ExtensionPoint.EXTENSION_POINT_POST_BIND)
        .setHandleClient(true)
        // No call comes about a pod with neither annotation. The methods read them all the same: a host may ask
        // about more.
        .setScope(PodScope.newBuilder().addTerms(
            PodScopeTerm.newBuilder().addAllAnnotationKeys(List.of("slots.example.com/use", "slots.example.com/wait"))))
        .build();
    Slots plugin = new Slots();
    Plugin.serve(me, plugin::configure, plugin, plugin.new State());
  }
}
