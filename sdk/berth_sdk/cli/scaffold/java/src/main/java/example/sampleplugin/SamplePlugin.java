package example.sampleplugin;

import com.google.gson.Gson; //[preBind]
import com.google.protobuf.ByteString; //[queueSort,preBind]
import com.google.protobuf.Duration; //[permit]
import com.google.protobuf.Struct; //[reserve]
import example.serve.Plugin;
import io.berth.plugin.v1.*;
import io.grpc.BindableService;
import io.grpc.Status; //[reserve]
import io.grpc.stub.StreamObserver;
import java.nio.ByteBuffer; //[queueSort]
import java.util.ArrayList;
import java.util.HashMap; //[reserve]
import java.util.List;
import java.util.Map; //[reserve,preBind]
import java.util.stream.LongStream; //[normalizeScore]
import java.util.stream.Stream; //[preFilter,filter,score]

/**
 * SamplePlugin is a scheduling plugin for berth. Say here what it is for.
 *
 * <p>It is in NAMES mode: each call has the complete pod and the names of the nodes, and the plugin keeps no copy of the
 * cluster.
 */
//[cycle]
public final class SamplePlugin extends SchedulingServiceGrpc.SchedulingServiceImplBase {
//[/]
//[!cycle]
public final class SamplePlugin {
//[/]
  /** What the configuration of the scheduler calls the plugin. */
  static final String NAME = "SamplePlugin";
  //[preEnqueue]
  /** Keeps a pod out of the queue. */
  static final String HOLD = "sample-plugin.example.com/hold";
  //[/]
  //[preFilter]
  /** Lists the nodes that a pod may run on, separated by commas. */
  static final String ONLY = "sample-plugin.example.com/only";
  //[/]
  //[filter]
  /** Lists the nodes that a pod must not run on, separated by commas. */
  static final String AVOID = "sample-plugin.example.com/avoid";
  //[/]
  //[preScore]
  /** Makes the plugin leave the order of the nodes to others. */
  static final String UNRANKED = "sample-plugin.example.com/unranked";
  //[/]
  //[score]
  /** Lists the nodes that a pod would like best, separated by commas. */
  static final String PREFER = "sample-plugin.example.com/prefer";
  //[/]
  //[permit]
  /** The number of seconds that a pod waits before it is bound. */
  static final String WAIT = "sample-plugin.example.com/wait-seconds";
  //[/]
  //[preBind]
  /** Where the plugin writes the node of a pod. */
  static final String CHOSEN = "sample-plugin.example.com/chosen-node";
  //[/]
  //[reserve]

  private static final long REMEMBERED = java.time.Duration.ofMinutes(5).toNanos(); // that a cycle is over

  private Map<String, Integer> limits = Map.of(); // by profile: the places of each node
  private final Map<String, String> held = new HashMap<>(); // cycle -> node; "": no place was free
  private final Map<String, Long> over = new HashMap<>(); // cycle -> when it ended, for a Reserve that comes late
  //[/]

  /** Takes the arguments of every profile. The text of an IllegalArgumentException goes to the operator. */
  synchronized void configure(ConfigureRequest request) {
    limits = Plugin.byProfile(request, SamplePlugin::limit); //[reserve]
  }

  //[reserve]
  private static int limit(Struct args) {
    double number = args.containsFields("podsPerNode") ? args.getFieldsOrThrow("podsPerNode").getNumberValue() : 110;
    if (number < 1 || number != (int) number) {
      throw new IllegalArgumentException("podsPerNode: must be a whole number above 0");
    }
    return (int) number;
  }

  //[/]
  //[cycle]
  /** Does what every call of a cycle begins with. Returns the head of the answer. */
  private ReplyContext.Builder begin(CallContext ctx) {
    ended(ctx.getEndedList()); //[reserve]
    return ReplyContext.newBuilder().setCycleId(ctx.getCycleId());
  }

  //[/]
  //[postFilter,preScore,reserve,permit,preBind,bind]
  /** Returns the head of an answer with a decision about the pod. */
  private ReplyContext.Builder decided(CallContext ctx, PluginStatus.Code code, String... reasons) {
    ReplyContext.Builder head = begin(ctx);
    head.getStatusBuilder().setCode(code).addAllReasons(List.of(reasons));
    return head;
  }

  //[/]
  //[preFilter,filter,preScore,score,permit]
  /** Returns an annotation of the pod; null: the pod does not have it. */
  private static String annotation(CallContext ctx, String key) {
    return ctx.getPod().getSummary().getAnnotationsMap().get(key);
  }

  //[/]
  //[preFilter,filter,score]
  /** Returns the names in an annotation of the pod. */
  private static List<String> listed(CallContext ctx, String key) {
    String names = annotation(ctx, key);
    return names == null ? List.of() : Stream.of(names.split(",")).filter(name -> !name.isEmpty()).toList();
  }

  //[/]
  //[queue]
  /** The calls about the queue. */
  static final class Queue extends QueueServiceGrpc.QueueServiceImplBase {
    //[preEnqueue]
    /** Keeps pods with the annotation HOLD out of the queue until it is removed. */
    @Override
    public void preEnqueue(PreEnqueueRequest request, StreamObserver<PreEnqueueResponse> to) {
      PreEnqueueResponse.Builder answer = PreEnqueueResponse.newBuilder();
      for (QueuedPod pod : request.getPodsList()) {
        PluginStatus.Builder status = answer.addStatusesBuilder().setCode(PluginStatus.Code.CODE_SUCCESS);
        if (pod.getSummary().containsAnnotations(HOLD)) {
          status.setCode(PluginStatus.Code.CODE_UNSCHEDULABLE_AND_UNRESOLVABLE);
          status.addReasons("annotation " + HOLD + " holds the pod");
        }
      }
      Plugin.answer(to, answer.build());
    }

    //[/]
    //[queueSort]
    /** Orders pods by priority, the highest first, then by the time that they wait. */
    @Override
    public void sortKeys(SortKeysRequest request, StreamObserver<SortKeysResponse> to) {
      SortKeysResponse.Builder answer = SortKeysResponse.newBuilder();
      for (QueuedPod pod : request.getPodsList()) {
        // Keys are compared as bytes: the high byte comes first, and negative numbers sort below the others.
        ByteBuffer key = ByteBuffer.allocate(20);
        key.putLong((long) Integer.MAX_VALUE - pod.getSummary().getPriority());
        key.putLong(Math.max(0, pod.getAddedAt().getSeconds())).putInt(pod.getAddedAt().getNanos());
        answer.addKeys(ByteString.copyFrom(key.array()));
      }
      Plugin.answer(to, answer.build());
    }

    //[/]
  }

  //[/]
  //[preFilter]
  /** Reduces the nodes to those that the annotation ONLY lists. */
  @Override
  public void preFilter(PreFilterRequest request, StreamObserver<PreFilterResponse> to) {
    PreFilterResponse.Builder answer = PreFilterResponse.newBuilder().setCtx(begin(request.getCtx()));
    List<String> names = listed(request.getCtx(), ONLY);
    if (!names.isEmpty()) {
      answer.getEligibleBuilder().addAllNames(names);
    }
    Plugin.answer(to, answer.build());
  }

  //[/]
  //[filter]
  /** Rejects the nodes that the annotation AVOID lists. */
  @Override
  public void filter(FilterRequest request, StreamObserver<FilterResponse> to) {
    FilterResponse.Builder answer = FilterResponse.newBuilder().setCtx(begin(request.getCtx()));
    List<String> avoided = listed(request.getCtx(), AVOID);
    List<String> rejected = request.getCandidates().getNamesList().stream().filter(avoided::contains).toList();
    if (!rejected.isEmpty()) {
      NodeGroup.Builder group = answer.getVerdictsBuilder().addRejectedBuilder();
      group.getStatusBuilder().setCode(PluginStatus.Code.CODE_UNSCHEDULABLE_AND_UNRESOLVABLE);
      group.getStatusBuilder().addReasons("node(s) that the pod avoids");
      group.getNodesBuilder().addAllNames(rejected);
    }
    Plugin.answer(to, answer.build());
  }

  //[/]
  //[postFilter]
  /** Says that this plugin cannot make room, so that the host asks the next one. */
  @Override
  public void postFilter(PostFilterRequest request, StreamObserver<PostFilterResponse> to) {
    ObjectRef pod = request.getCtx().getPod().getSummary().getRef();
    System.err.println("no node for " + pod.getNamespace() + "/" + pod.getName());
    var head = decided(request.getCtx(), PluginStatus.Code.CODE_UNSCHEDULABLE, "sample-plugin cannot make room");
    Plugin.answer(to, PostFilterResponse.newBuilder().setCtx(head).build());
  }

  //[/]
  //[preScore]
  /** Leaves out Score for pods with the annotation UNRANKED. */
  @Override
  public void preScore(PreScoreRequest request, StreamObserver<PreScoreResponse> to) {
    boolean isRanked = annotation(request.getCtx(), UNRANKED) == null;
    var code = isRanked ? PluginStatus.Code.CODE_SUCCESS : PluginStatus.Code.CODE_SKIP;
    Plugin.answer(to, PreScoreResponse.newBuilder().setCtx(decided(request.getCtx(), code)).build());
  }

  //[/]
  //[score]
  /** Gives the nodes that the annotation PREFER lists 50 points, and the others none. */
  @Override
  public void score(ScoreRequest request, StreamObserver<ScoreResponse> to) {
    ScoreResponse.Builder answer = ScoreResponse.newBuilder().setCtx(begin(request.getCtx()));
    List<String> preferred = listed(request.getCtx(), PREFER);
    for (String node : request.getCandidates().getNamesList()) {
      answer.getScoresBuilder().addDense(preferred.contains(node) ? 50 : 0);
    }
    Plugin.answer(to, answer.build());
  }

  //[/]
  //[normalizeScore]
  /** Brings the scores into 0..100: the best node gets 100. */
  @Override
  public void normalizeScore(NormalizeScoreRequest request, StreamObserver<NormalizeScoreResponse> to) {
    NormalizeScoreResponse.Builder answer = NormalizeScoreResponse.newBuilder().setCtx(begin(request.getCtx()));
    LongStream.Builder given = LongStream.builder();
    request.getScores().getDenseList().forEach(given::add);
    for (byte one : request.getScores().getSmall().toByteArray()) { // the host may send either form
      given.add(Byte.toUnsignedLong(one));
    }
    long[] scores = given.build().toArray();
    long best = Math.max(1, LongStream.of(scores).max().orElse(0));
    for (long score : scores) {
      answer.getScoresBuilder().addDense(score * 100 / best);
    }
    Plugin.answer(to, answer.build());
  }

  //[/]
  //[reserve]
  /** Takes one of the places of the node, podsPerNode of the arguments. */
  @Override
  public void reserve(ReserveRequest request, StreamObserver<ReserveResponse> to) {
    Plugin.answer(to, ReserveResponse.newBuilder().setCtx(reserved(request.getCtx(), request.getNodeName())).build());
  }

  private synchronized ReplyContext.Builder reserved(CallContext ctx, String node) {
    String cycle = ctx.getCycleId();
    if (over.containsKey(cycle)) {
      return decided(ctx, PluginStatus.Code.CODE_ERROR, "the cycle is over");
    }
    ended(ctx.getEndedList()); // these make room
    if (!held.containsKey(cycle)) { // a cycle that asks again gets its first answer
      long taken = held.values().stream().filter(node::equals).count();
      held.put(cycle, taken < limits.getOrDefault(ctx.getProfile(), 0) ? node : "");
    }
    if (held.get(cycle).isEmpty()) {
      return decided(ctx, PluginStatus.Code.CODE_UNSCHEDULABLE, "node(s) have too many pods under way");
    }
    return decided(ctx, PluginStatus.Code.CODE_SUCCESS);
  }

  /** Gives back what a cycle holds. A cycle that is not known counts as ended. */
  private synchronized void end(String cycle) {
    held.remove(cycle);
    long now = System.nanoTime();
    over.values().removeIf(at -> now - at > REMEMBERED);
    over.put(cycle, now);
  }

  /** Drops the cycles that hold nothing any more. Of the others the host says so itself, by Unreserve. */
  private synchronized void ended(List<CycleEnd> cycles) {
    for (CycleEnd one : cycles) {
      String node = held.get(one.getCycleId());
      if (node != null && (node.isEmpty() || one.getOutcome() == CycleEnd.Outcome.OUTCOME_BOUND)) {
        end(one.getCycleId());
      }
    }
  }

  /** Keeps the live reservations and no other one. */
  private synchronized void keep(Map<String, String> live) {
    List.copyOf(held.keySet()).forEach(this::end);
    held.putAll(live);
    over.keySet().removeAll(live.keySet());
  }

  /** The calls about what outlives a restart. */
  final class State extends StateServiceGrpc.StateServiceImplBase {
    /** Keeps the reservations that the pages list, after a restart of this process or of the host. */
    @Override
    public StreamObserver<ReconcileRequest> reconcile(StreamObserver<ReconcileResponse> to) {
      Map<String, String> live = new HashMap<>();
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
          page.getLiveList().forEach(one -> live.put(one.getCycleId(), one.getNodeName()));
          isComplete = page.getLast();
        }

        @Override
        public void onCompleted() {
          if (!isComplete) {
            refuse("the stream ended before its last page");
          } else if (!isRefused) {
            keep(live);
            Plugin.answer(to, ReconcileResponse.getDefaultInstance());
          }
        }

        @Override
        public void onError(Throwable cancelled) {}
      };
    }
  }

  //[/]
  //[reserve,permit]
  /** Gives back what the cycles hold. The host calls it also for cycles that hold nothing. */
  @Override
  public void unreserve(UnreserveRequest request, StreamObserver<UnreserveResponse> to) {
    UnreserveResponse.Builder answer = UnreserveResponse.newBuilder();
    for (UnreserveItem item : request.getItemsList()) {
      end(item.getCycleId()); //[reserve]
      answer.addDoneCycleIds(item.getCycleId());
    }
    Plugin.answer(to, answer.build());
  }

  //[/]
  //[permit]
  /** Lets pods with the annotation WAIT wait for so many seconds. DecideWaitingPods of HandleService ends it earlier. */
  @Override
  public void permit(PermitRequest request, StreamObserver<PermitResponse> to) {
    PermitResponse.Builder answer = PermitResponse.newBuilder();
    String seconds = annotation(request.getCtx(), WAIT);
    if (seconds != null && seconds.matches("[1-9][0-9]{0,3}")) {
      String reason = "annotation " + WAIT + " lets the pod wait";
      answer.setCtx(decided(request.getCtx(), PluginStatus.Code.CODE_WAIT, reason));
      answer.setWaitTimeout(Duration.newBuilder().setSeconds(Long.parseLong(seconds)));
    } else {
      answer.setCtx(decided(request.getCtx(), PluginStatus.Code.CODE_SUCCESS));
    }
    Plugin.answer(to, answer.build());
  }

  //[/]
  //[preBind]
  /** Says that PreBind has work to do for each pod. */
  @Override
  public void preBindPreFlight(PreBindPreFlightRequest request, StreamObserver<PreBindPreFlightResponse> to) {
    var head = decided(request.getCtx(), PluginStatus.Code.CODE_SUCCESS);
    Plugin.answer(to, PreBindPreFlightResponse.newBuilder().setCtx(head).build());
  }

  /** Writes the chosen node into the annotation CHOSEN of the pod; the host makes the patch. */
  @Override
  public void preBind(PreBindRequest request, StreamObserver<PreBindResponse> to) {
    CallContext ctx = request.getCtx();
    PreBindResponse.Builder answer = PreBindResponse.newBuilder();
    answer.setCtx(decided(ctx, PluginStatus.Code.CODE_SUCCESS));
    if (request.getPatchedCount() == 0) {
      var annotations = Map.of("annotations", Map.of(CHOSEN, request.getNodeName()));
      answer.setDoneWhenApplied(true).addPatches(ObjectPatch.newBuilder()
          .setResource("pods")
          .setRef(ctx.getPod().getSummary().getRef())
          .setMergePatchJson(ByteString.copyFromUtf8(new Gson().toJson(Map.of("metadata", annotations))))
          .setAction(ObjectPatch.Action.ACTION_MERGE));
    } else if (request.getPatched(0).getOutcome() != PatchResult.Outcome.OUTCOME_APPLIED) {
      String reason = "the pod was not patched: " + request.getPatched(0).getMessage();
      answer.setCtx(decided(ctx, PluginStatus.Code.CODE_ERROR, reason));
    }
    Plugin.answer(to, answer.build());
  }

  //[/]
  //[bind]
  /** Lets the host post the Binding. */
  @Override
  public void bind(BindRequest request, StreamObserver<BindResponse> to) {
    var head = decided(request.getCtx(), PluginStatus.Code.CODE_SUCCESS);
    Plugin.answer(to, BindResponse.newBuilder().setCtx(head).setHostBinds(true).build());
  }

  //[/]
  //[postBind]
  /** Logs that pods are bound. */
  @Override
  public void postBind(PostBindRequest request, StreamObserver<PostBindResponse> to) {
    for (PostBindItem item : request.getItemsList()) {
      ObjectRef pod = item.getPod();
      System.err.println(pod.getNamespace() + "/" + pod.getName() + " is bound to " + item.getNodeName());
      end(item.getCycleId()); //[reserve]
    }
    Plugin.answer(to, PostBindResponse.getDefaultInstance());
  }

  //[/]
  //[cycle]
  /** Drops what the plugin keeps for cycles that are over. */
  @Override
  public void endCycles(EndCyclesRequest request, StreamObserver<EndCyclesResponse> to) {
    ended(request.getEndedList()); //[reserve]
    Plugin.answer(to, EndCyclesResponse.getDefaultInstance());
  }

  //[/]
  /** Returns how the plugin introduces itself to the host. */
  static PluginDescriptor descriptor() {
    return PluginDescriptor.newBuilder()
        .setName(NAME)
        .setVersion("0.1.0")
        .addPoints(ExtensionPoint.EXTENSION_POINT_PRE_ENQUEUE) //[preEnqueue]
        .addPoints(ExtensionPoint.EXTENSION_POINT_QUEUE_SORT) //[queueSort]
        .addPoints(ExtensionPoint.EXTENSION_POINT_PRE_FILTER) //[preFilter]
        .addPoints(ExtensionPoint.EXTENSION_POINT_FILTER) //[filter]
        .addPoints(ExtensionPoint.EXTENSION_POINT_POST_FILTER) //[postFilter]
        .addPoints(ExtensionPoint.EXTENSION_POINT_PRE_SCORE) //[preScore]
        .addPoints(ExtensionPoint.EXTENSION_POINT_SCORE) //[score]
        .addPoints(ExtensionPoint.EXTENSION_POINT_NORMALIZE_SCORE) //[normalizeScore]
        .addPoints(ExtensionPoint.EXTENSION_POINT_RESERVE) //[reserve]
        .addPoints(ExtensionPoint.EXTENSION_POINT_PERMIT) //[permit]
        .addPoints(ExtensionPoint.EXTENSION_POINT_PRE_BIND) //[preBind]
        .addPoints(ExtensionPoint.EXTENSION_POINT_BIND) //[bind]
        .addPoints(ExtensionPoint.EXTENSION_POINT_POST_BIND) //[postBind]
        //[score,!normalizeScore]
        // Score answers 0..100, and the score of a node does not depend on the other candidates.
        .setNormalization(ScoreNormalization.SCORE_NORMALIZATION_NONE)
        //[/]
        //[normalizeScore]
        // NormalizeScore brings the scores into 0..100.
        .setNormalization(ScoreNormalization.SCORE_NORMALIZATION_RPC)
        //[/]
        .build();
  }

  public static void main(String[] unused) throws Exception {
    SamplePlugin plugin = new SamplePlugin();
    List<BindableService> services = new ArrayList<>();
    services.add(new Queue()); //[queue]
    services.add(plugin); //[cycle]
    services.add(plugin.new State()); //[reserve]
    Plugin.serve(descriptor(), plugin::configure, services.toArray(BindableService[]::new));
  }
}
