package example.smallest;

import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import example.serve.Plugin;
import io.berth.plugin.v1.ConfigureRequest;
import io.berth.plugin.v1.DependsOn;
import io.berth.plugin.v1.EndCyclesRequest;
import io.berth.plugin.v1.EndCyclesResponse;
import io.berth.plugin.v1.ExtensionPoint;
import io.berth.plugin.v1.FilterRequest;
import io.berth.plugin.v1.FilterResponse;
import io.berth.plugin.v1.NodeGroup;
import io.berth.plugin.v1.PluginDescriptor;
import io.berth.plugin.v1.PluginStatus;
import io.berth.plugin.v1.PodFields;
import io.berth.plugin.v1.SchedulingServiceGrpc;
import io.grpc.stub.StreamObserver;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Maintenance keeps pods off the nodes that its argument `nodes` names. It is in NAMES mode: it gets names of nodes, and no
 * state.
 */
public final class Maintenance extends SchedulingServiceGrpc.SchedulingServiceImplBase {
  private volatile Map<String, Set<String>> closed = Map.of(); // by profile

  void configure(ConfigureRequest request) {
    closed = Plugin.byProfile(request, Maintenance::closedNodes);
  }

  static Set<String> closedNodes(Struct args) {
    Set<String> names = new HashSet<>();
    Value nodes = args.getFieldsOrDefault("nodes", Value.getDefaultInstance());
    boolean isList = nodes.hasListValue() || nodes.getKindCase() == Value.KindCase.KIND_NOT_SET;
    for (Value node : nodes.getListValue().getValuesList()) {
      isList = isList && node.hasStringValue();
      names.add(node.getStringValue());
    }
    if (!isList) {
      throw new IllegalArgumentException("nodes: must be a list of names of nodes");
    }
    return names;
  }

  @Override
  public void filter(FilterRequest request, StreamObserver<FilterResponse> to) {
    Set<String> names = closed.getOrDefault(request.getCtx().getProfile(), Set.of());
    List<String> shut = request.getCandidates().getNamesList().stream().filter(names::contains).toList();
    FilterResponse.Builder answer = FilterResponse.newBuilder();
    answer.getCtxBuilder().setCycleId(request.getCtx().getCycleId());
    if (!shut.isEmpty()) {
      NodeGroup.Builder group = answer.getVerdictsBuilder().addRejectedBuilder();
      group.getStatusBuilder().setCode(PluginStatus.Code.CODE_UNSCHEDULABLE).addReasons("under maintenance");
      group.getNodesBuilder().addAllNames(shut);
    }
    Plugin.answer(to, answer.build());
  }

  @Override
  public void endCycles(EndCyclesRequest request, StreamObserver<EndCyclesResponse> to) {
    Plugin.answer(to, EndCyclesResponse.getDefaultInstance()); // the plugin keeps nothing of a cycle
  }

  public static void main(String[] unused) throws Exception {
    PluginDescriptor me = PluginDescriptor.newBuilder()
        .setName("Maintenance")
        .addPoints(ExtensionPoint.EXTENSION_POINT_FILTER)
        .setDependsOn(DependsOn.DEPENDS_ON_NODE)
        .setSignFields(PodFields.getDefaultInstance()) // no field of the pod counts
        .setHostKeepsAnswers(true)
        .build();
    Maintenance plugin = new Maintenance();
    Plugin.serve(me, plugin::configure, plugin);
  }
}
