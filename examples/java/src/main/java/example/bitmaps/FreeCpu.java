package example.bitmaps;

import com.google.protobuf.ByteString;
import example.serve.Plugin;
import io.berth.plugin.v1.*;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.util.BitSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * FreeCpu keeps pods off nodes without enough free CPU, and prefers the nodes with the most. It is in SNAPSHOT mode: it
 * keeps a table of the nodes, and names them by bitmaps.
 */
public final class FreeCpu extends SchedulingServiceGrpc.SchedulingServiceImplBase {
  private static final int KEPT_CYCLES = 4096; // reports of the end of a cycle can get lost
  private static final PluginStatus REJECTION = PluginStatus.newBuilder()
      .setCode(PluginStatus.Code.CODE_UNSCHEDULABLE).addReasons("not enough free cpu").build();
  private static final PluginStatus CONSENT =
      PluginStatus.newBuilder().setCode(PluginStatus.Code.CODE_SUCCESS).build();

  private Table table = new Table();
  // What the pod of a cycle requests, in thousandths of a core.
  private final Map<String, Long> requests = new LinkedHashMap<>() {
    @Override
    protected boolean removeEldestEntry(Map.Entry<String, Long> oldest) {
      return size() > KEPT_CYCLES;
    }
  };

  private void end(List<CycleEnd> ended) {
    ended.forEach(end -> requests.remove(end.getCycleId()));
  }

  /** Takes what the context brings. Returns what the pod requests; null if the answer says that something is missing. */
  private Long begin(CallContext ctx, ReplyContext.Builder answer) {
    answer.setCycleId(ctx.getCycleId());
    end(ctx.getEndedList());
    boolean isTaken = !ctx.hasDelta() || table.take(ctx.getDelta());
    if (!isTaken || !ctx.getVersion().equals(table.version())) {
      answer.addMissing(Missing.MISSING_STATE);
      if (table.version() != null) {
        answer.setHave(table.version());
      }
      return null;
    }
    if (ctx.getPod().getComplete()) {
      requests.put(ctx.getCycleId(), ctx.getPod().getSummary().getRequestsOrDefault("cpu", 0));
    }
    Long cpu = requests.get(ctx.getCycleId());
    if (cpu == null) {
      answer.addMissing(Missing.MISSING_POD);
    }
    return cpu;
  }

  @Override
  public synchronized void filter(FilterRequest request, StreamObserver<FilterResponse> to) {
    FilterResponse.Builder answer = FilterResponse.newBuilder();
    Long cpu = begin(request.getCtx(), answer.getCtxBuilder());
    if (cpu != null) {
      BitSet rejected = table.chosen(request.getCandidates());
      rejected.stream().filter(index -> table.node(index).free() >= cpu).forEach(rejected::clear);
      if (!rejected.isEmpty()) {
        NodeGroup.Builder group = answer.getVerdictsBuilder().addRejectedBuilder().setStatus(REJECTION);
        group.getNodesBuilder().setBitmap(ByteString.copyFrom(rejected.toByteArray()));
      }
    }
    Plugin.answer(to, answer.build());
  }

  @Override
  public synchronized void simulateFilter(SimulateFilterRequest request, StreamObserver<SimulateFilterResponse> to) {
    SimulateFilterResponse.Builder answer = SimulateFilterResponse.newBuilder();
    Long cpu = begin(request.getCtx(), answer.getCtxBuilder());
    if (cpu != null) {
      for (Scenario scenario : request.getScenariosList()) {
        ScenarioNode assumed = scenario.getNode();
        Table.Node node = assumed.hasNodeIndex() ? table.node(assumed.getNodeIndex()) : null;
        if (node == null) {
          to.onError(Status.INVALID_ARGUMENT.withDescription("a scenario names no node").asException());
          return;
        }
        answer.addStatuses(node.using(assumed.getUsage()).free() < cpu ? REJECTION : CONSENT);
      }
    }
    Plugin.answer(to, answer.build());
  }

  @Override
  public synchronized void score(ScoreRequest request, StreamObserver<ScoreResponse> to) {
    ScoreResponse.Builder answer = ScoreResponse.newBuilder();
    Long cpu = begin(request.getCtx(), answer.getCtxBuilder());
    if (cpu != null) {
      // RunScores asks about nodes that are not feasible too, and HOST_MAX takes no score below 0.
      table.chosen(request.getCandidates()).stream()
          .mapToLong(index -> Math.max(0, table.node(index).free() - cpu))
          .forEach(answer.getScoresBuilder()::addDense);
    }
    Plugin.answer(to, answer.build());
  }

  @Override
  public synchronized void endCycles(EndCyclesRequest request, StreamObserver<EndCyclesResponse> to) {
    end(request.getEndedList());
    Plugin.answer(to, EndCyclesResponse.getDefaultInstance());
  }

  private synchronized SyncStateResponse sync(Table.Chunks chunks) {
    Table synced = table.synced(chunks);
    table = synced == null ? table : synced;
    SyncStateResponse.Builder answer = SyncStateResponse.newBuilder().setNeedFull(synced == null);
    return (table.version() == null ? answer : answer.setHave(table.version())).build();
  }

  /** Collects the chunks of SyncState. */
  final class State extends StateServiceGrpc.StateServiceImplBase {
    @Override
    public StreamObserver<SyncStateRequest> syncState(StreamObserver<SyncStateResponse> to) {
      Table.Chunks chunks = new Table.Chunks();
      return new StreamObserver<>() {
        private boolean isAnswered;

        private void refuse(String why) {
          if (!isAnswered) {
            isAnswered = true;
            to.onError(Status.INVALID_ARGUMENT.withDescription(why).asException());
          }
        }

        @Override
        public void onNext(SyncStateRequest request) {
          if (isAnswered || request.getSequence() != chunks.count) {
            refuse("chunk " + request.getSequence() + " came in place of " + chunks.count);
            return;
          }
          chunks.add(request);
          if (request.getLast()) {
            isAnswered = true;
            Plugin.answer(to, sync(chunks));
          }
        }

        @Override
        public void onCompleted() {
          refuse("the stream ended before its last chunk");
        }

        @Override
        public void onError(Throwable cancelled) {}
      };
    }
  }

  static PluginDescriptor descriptor() {
    return PluginDescriptor.newBuilder()
        .setName("FreeCpu")
        .addPoints(ExtensionPoint.EXTENSION_POINT_FILTER)
        .addPoints(ExtensionPoint.EXTENSION_POINT_SCORE)
        .setNodeMode(NodeMode.NODE_MODE_SNAPSHOT)
        .addNeeds(DeclaredNeed.newBuilder().setKind(DeclaredNeed.Kind.KIND_NODE_SUMMARY))
        .setPodSensitivity(PodSensitivity.POD_SENSITIVITY_NODE)
        .setNormalization(ScoreNormalization.SCORE_NORMALIZATION_HOST_MAX)
        .build();
  }

  public static void main(String[] unused) throws Exception {
    FreeCpu plugin = new FreeCpu();
    Plugin.serve(descriptor(), configured -> {}, plugin, plugin.new State());
  }
}
