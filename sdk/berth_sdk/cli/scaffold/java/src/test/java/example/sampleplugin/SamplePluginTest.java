package example.sampleplugin;

import static org.junit.jupiter.api.Assertions.assertArrayEquals; //[queueSort]
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse; //[preFilter]
import static org.junit.jupiter.api.Assertions.assertThrows; //[reserve]
import static org.junit.jupiter.api.Assertions.assertTrue; //[bind,preBind,reserve]

import com.google.gson.JsonParser; //[preBind]
import com.google.protobuf.ByteString; //[queueSort,normalizeScore]
import com.google.protobuf.Struct; //[reserve]
import com.google.protobuf.Value; //[reserve]
import io.berth.plugin.v1.*;
import io.grpc.stub.StreamObserver;
import java.util.List; //[cycle,queueSort]
import java.util.function.BiConsumer;
import org.junit.jupiter.api.Test;

/** SamplePlugin, asked in this process: no server, no cluster. */
class SamplePluginTest {
  //[cycle]
  private static final NodeSet NODES = NodeSet.newBuilder().addAllNames(List.of("n1", "n2", "n3")).build();

  //[/]
  private final SamplePlugin plugin = new SamplePlugin();

  /** Takes the answer of one call. */
  private static final class Taken<T> implements StreamObserver<T> {
    private T answer;
    private Throwable error;

    @Override
    public void onNext(T message) {
      answer = message;
    }

    @Override
    public void onError(Throwable wrong) {
      error = wrong;
    }

    @Override
    public void onCompleted() {}
  }

  private static <Q, A> A ask(BiConsumer<Q, StreamObserver<A>> call, Q request) {
    Taken<A> taken = new Taken<>();
    call.accept(request, taken);
    return taken.answer;
  }

  //[cycle]
  /** Returns the context of a call about a pod with one annotation. */
  private static CallContext about(String cycle, String annotation, String value) {
    CallContext.Builder ctx = CallContext.newBuilder().setCycleId(cycle);
    ctx.setPlugin(SamplePlugin.NAME).setProfile("default-scheduler");
    PodSummary.Builder pod = ctx.getPodBuilder().setComplete(true).getSummaryBuilder();
    pod.putAnnotations(annotation, value).getRefBuilder().setNamespace("default").setName("web");
    return ctx.build();
  }

  //[/]
  @Test
  void pluginIsNamedAsInTheConfiguration() {
    assertEquals("SamplePlugin", SamplePlugin.descriptor().getName());
  }
  //[preEnqueue]

  @Test
  void podThatIsHeldDoesNotEnterTheQueue() {
    PreEnqueueRequest.Builder request = PreEnqueueRequest.newBuilder();
    request.addPodsBuilder();
    request.addPodsBuilder().getSummaryBuilder().putAnnotations(SamplePlugin.HOLD, "true");
    PreEnqueueResponse answer = ask(new SamplePlugin.Queue()::preEnqueue, request.build());
    assertEquals(PluginStatus.Code.CODE_SUCCESS, answer.getStatuses(0).getCode());
    assertEquals(PluginStatus.Code.CODE_UNSCHEDULABLE_AND_UNRESOLVABLE, answer.getStatuses(1).getCode());
  }
  //[/]
  //[queueSort]

  @Test
  void podOfHigherPriorityComesFirst() {
    // Priorities and times, in the order in which the pods are tried.
    int[][] pods = {{2000000000, 9}, {1, 1}, {1, 2}, {0, 0}, {-5, 0}};
    SortKeysRequest.Builder request = SortKeysRequest.newBuilder();
    for (int[] pod : pods) {
      QueuedPod.Builder one = request.addPodsBuilder();
      one.getSummaryBuilder().setPriority(pod[0]);
      one.getAddedAtBuilder().setSeconds(pod[1]);
    }
    List<ByteString> keys = ask(new SamplePlugin.Queue()::sortKeys, request.build()).getKeysList();
    List<ByteString> sorted = keys.stream().sorted(ByteString.unsignedLexicographicalComparator()).distinct().toList();
    assertArrayEquals(sorted.toArray(), keys.toArray());
  }
  //[/]
  //[preFilter]

  @Test
  void annotationReducesTheNodes() {
    PreFilterRequest.Builder request = PreFilterRequest.newBuilder().setCandidates(NODES);
    request.setCtx(about("1", SamplePlugin.ONLY, "n1,n2"));
    assertEquals(List.of("n1", "n2"), ask(plugin::preFilter, request.build()).getEligible().getNamesList());
    request.setCtx(about("2", "other", ""));
    assertFalse(ask(plugin::preFilter, request.build()).hasEligible());
  }
  //[/]
  //[filter]

  @Test
  void nodeThatThePodAvoidsIsRejected() {
    FilterRequest.Builder request = FilterRequest.newBuilder().setCandidates(NODES);
    request.setCtx(about("1", SamplePlugin.AVOID, "n2"));
    NodeVerdicts verdicts = ask(plugin::filter, request.build()).getVerdicts();
    assertEquals(List.of("n2"), verdicts.getRejected(0).getNodes().getNamesList());
    request.setCtx(about("2", "other", ""));
    assertEquals(0, ask(plugin::filter, request.build()).getVerdicts().getRejectedCount());
  }
  //[/]
  //[postFilter]

  @Test
  void pluginLeavesTheSearchForVictimsToOthers() {
    PostFilterRequest request = PostFilterRequest.newBuilder().setCtx(about("1", "other", "")).build();
    var status = ask(plugin::postFilter, request).getCtx().getStatus();
    assertEquals(PluginStatus.Code.CODE_UNSCHEDULABLE, status.getCode());
  }
  //[/]
  //[preScore]

  @Test
  void podThatIsUnrankedIsNotScored() {
    PreScoreRequest.Builder request = PreScoreRequest.newBuilder().setCandidates(NODES);
    request.setCtx(about("1", SamplePlugin.UNRANKED, ""));
    PreScoreResponse unranked = ask(plugin::preScore, request.build());
    assertEquals(PluginStatus.Code.CODE_SKIP, unranked.getCtx().getStatus().getCode());
    request.setCtx(about("2", "other", ""));
    PreScoreResponse ranked = ask(plugin::preScore, request.build());
    assertEquals(PluginStatus.Code.CODE_SUCCESS, ranked.getCtx().getStatus().getCode());
  }
  //[/]
  //[score]

  @Test
  void nodeThatThePodPrefersScoresMore() {
    ScoreRequest.Builder request = ScoreRequest.newBuilder().setCandidates(NODES);
    request.setCtx(about("1", SamplePlugin.PREFER, "n3"));
    assertEquals(List.of(0L, 0L, 50L), ask(plugin::score, request.build()).getScores().getDenseList());
  }
  //[/]
  //[normalizeScore]

  @Test
  void bestNodeGets100() {
    NormalizeScoreRequest.Builder request = NormalizeScoreRequest.newBuilder().setCtx(about("1", "other", ""));
    request.getScoresBuilder().addAllDense(List.of(0L, 25L, 50L));
    var dense = ask(plugin::normalizeScore, request.build()).getScores().getDenseList();
    assertEquals(List.of(0L, 50L, 100L), dense);
    request.getScoresBuilder().clear().setSmall(ByteString.copyFrom(new byte[] {0, (byte) 200}));
    var small = ask(plugin::normalizeScore, request.build()).getScores().getDenseList();
    assertEquals(List.of(0L, 100L), small);
  }
  //[/]
  //[reserve]

  /** Gives each node so many places. */
  private void configure(double podsPerNode) {
    Struct.Builder args = Struct.newBuilder();
    args.putFields("podsPerNode", Value.newBuilder().setNumberValue(podsPerNode).build());
    ConfigureRequest.Builder request = ConfigureRequest.newBuilder();
    request.addPluginsBuilder().setProfile("default-scheduler").setArgs(args);
    plugin.configure(request.build());
  }

  private PluginStatus.Code reserved(String cycle) {
    var request = ReserveRequest.newBuilder().setCtx(about(cycle, "other", "")).setNodeName("n1");
    return ask(plugin::reserve, request.build()).getCtx().getStatus().getCode();
  }

  /** Sends pages of live reservations. Returns the error; null: none. */
  private Throwable reconcile(ReconcileRequest.Builder... pages) {
    Taken<ReconcileResponse> taken = new Taken<>();
    StreamObserver<ReconcileRequest> stream = plugin.new State().reconcile(taken);
    for (ReconcileRequest.Builder page : pages) {
      stream.onNext(page.build());
    }
    stream.onCompleted();
    return taken.error;
  }

  @Test
  void placeIsGivenBack() {
    configure(1);
    assertEquals(PluginStatus.Code.CODE_SUCCESS, reserved("1"));
    assertEquals(PluginStatus.Code.CODE_SUCCESS, reserved("1")); // a duplicate
    assertEquals(PluginStatus.Code.CODE_UNSCHEDULABLE, reserved("2"));
    UnreserveRequest.Builder request = UnreserveRequest.newBuilder();
    request.addItemsBuilder().setCycleId("1");
    assertEquals(List.of("1"), ask(plugin::unreserve, request.build()).getDoneCycleIdsList());
    assertEquals(PluginStatus.Code.CODE_SUCCESS, reserved("3"));
    assertEquals(PluginStatus.Code.CODE_ERROR, reserved("1")); // its cycle is over
  }

  @Test
  void placeOfABoundPodIsFreeAndSoIsOneThatIsNotLive() {
    configure(1);
    ReconcileRequest.Builder page = ReconcileRequest.newBuilder().setLast(true);
    page.addLiveBuilder().setCycleId("1").setNodeName("n1");
    assertEquals(null, reconcile(page));
    assertEquals(PluginStatus.Code.CODE_UNSCHEDULABLE, reserved("2"));
    EndCyclesRequest.Builder ends = EndCyclesRequest.newBuilder();
    ends.addEndedBuilder().setCycleId("1").setOutcome(CycleEnd.Outcome.OUTCOME_BOUND);
    ask(plugin::endCycles, ends.build());
    assertEquals(PluginStatus.Code.CODE_SUCCESS, reserved("3"));
    assertEquals(null, reconcile(ReconcileRequest.newBuilder().setLast(true)));
    assertEquals(PluginStatus.Code.CODE_SUCCESS, reserved("4"));
    assertTrue(reconcile(ReconcileRequest.newBuilder().setSequence(1).setLast(true)).getMessage().contains("page 1"));
  }

  @Test
  void argumentThatMakesNoSenseIsRefused() {
    for (double wrong : new double[] {0, -1, 1.5}) {
      assertThrows(IllegalArgumentException.class, () -> configure(wrong));
    }
  }
  //[/]
  //[permit]

  @Test
  void podWithTheAnnotationWaits() {
    PermitRequest.Builder request = PermitRequest.newBuilder().setNodeName("n1");
    PermitResponse answer = ask(plugin::permit, request.setCtx(about("1", SamplePlugin.WAIT, "30")).build());
    assertEquals(PluginStatus.Code.CODE_WAIT, answer.getCtx().getStatus().getCode());
    assertEquals(30, answer.getWaitTimeout().getSeconds());
    PermitResponse other = ask(plugin::permit, request.setCtx(about("2", SamplePlugin.WAIT, "long")).build());
    assertEquals(PluginStatus.Code.CODE_SUCCESS, other.getCtx().getStatus().getCode());
  }
  //[/]
  //[preBind]

  @Test
  void chosenNodeIsWrittenToThePod() {
    PreBindRequest.Builder request = PreBindRequest.newBuilder().setCtx(about("1", "other", "")).setNodeName("n1");
    PreBindResponse answer = ask(plugin::preBind, request.build());
    var patch = JsonParser.parseString(answer.getPatches(0).getMergePatchJson().toStringUtf8()).getAsJsonObject();
    var annotations = patch.getAsJsonObject("metadata").getAsJsonObject("annotations");
    assertEquals("n1", annotations.get(SamplePlugin.CHOSEN).getAsString());
    assertTrue(answer.getDoneWhenApplied());
    request.addPatchedBuilder().setOutcome(PatchResult.Outcome.OUTCOME_CONFLICT);
    PreBindResponse after = ask(plugin::preBind, request.build());
    assertEquals(PluginStatus.Code.CODE_ERROR, after.getCtx().getStatus().getCode());
  }
  //[/]
  //[bind]

  @Test
  void hostPostsTheBinding() {
    BindRequest request = BindRequest.newBuilder().setCtx(about("1", "other", "")).setNodeName("n1").build();
    assertTrue(ask(plugin::bind, request).getHostBinds());
  }
  //[/]
  //[postBind]

  @Test
  void bindingIsAcknowledged() {
    PostBindRequest.Builder request = PostBindRequest.newBuilder();
    request.addItemsBuilder().setCycleId("1").setNodeName("n1").getPodBuilder().setName("web");
    assertEquals(PostBindResponse.getDefaultInstance(), ask(plugin::postBind, request.build()));
  }
  //[/]
}
