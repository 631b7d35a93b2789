package example.bitmaps;

import io.berth.plugin.v1.NodeSet;
import io.berth.plugin.v1.NodeState;
import io.berth.plugin.v1.NodeUsage;
import io.berth.plugin.v1.StateDelta;
import io.berth.plugin.v1.StateVersion;
import io.berth.plugin.v1.SyncStateRequest;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;

/** The copy of the host's nodes, as deltas bring it up to date. */
final class Table {
  private static final long MODULUS = 1L << 53;

  /** CPU in thousandths of a core. */
  record Node(long generation, long allocatable, long requested) {
    static final Node NONE = new Node(0, 0, 0);

    long free() {
      return allocatable - requested;
    }

    Node using(NodeUsage usage) {
      return new Node(generation, allocatable, usage.getRequestedOrDefault("cpu", 0));
    }

    /** Returns the node with the parts that `state` has; a part that it lacks did not change. */
    Node with(NodeState state) {
      long cpu = state.hasSummary() ? state.getSummary().getAllocatableOrDefault("cpu", 0) : allocatable;
      Node node = new Node(state.getGeneration(), cpu, requested);
      return state.hasUsage() ? node.using(state.getUsage()) : node;
    }
  }

  private StateVersion version; // null: there is no copy
  private final Map<Integer, Node> nodes = new HashMap<>();
  private final Map<Integer, String> names = new HashMap<>();
  private final BitSet indices = new BitSet();
  private long sum;

  /** Returns the version of the copy, null without one. */
  StateVersion version() {
    return version;
  }

  Node node(int index) {
    return nodes.get(index);
  }

  /**
   * Applies a delta; one that is applied already changes nothing. Returns false if the copy is at neither version. A delta
   * without a base is the full state, which replaces the copy.
   */
  boolean take(StateDelta delta) {
    if (!delta.hasBase()) {
      nodes.clear();
      names.clear();
      indices.clear();
      sum = 0;
    } else if (delta.getTarget().equals(version)) {
      return true;
    } else if (!delta.getBase().equals(version)) {
      return false;
    }
    boolean isWhole = delta.getObjectCount() == 0; // the plugin declares no objects
    delta.getRemovedList().forEach(index -> put(index, null));
    names.keySet().removeAll(delta.getRemovedList());
    for (NodeState state : delta.getUpsertsList()) {
      String name = names.computeIfAbsent(state.getIndex(), index -> state.getName());
      isWhole &= !name.isEmpty() && (state.getName().isEmpty() || state.getName().equals(name));
      put(state.getIndex(), nodes.getOrDefault(state.getIndex(), Node.NONE).with(state));
    }
    isWhole &= nodes.size() == delta.getNodeCount() && sum == delta.getGenerationSum();
    version = isWhole ? delta.getTarget() : null;
    return isWhole;
  }

  /**
   * Returns the table after a SyncState; null if the host must send the full state. A full state makes a new table, so that a
   * faulty one leaves the copy as it is.
   */
  Table synced(Chunks chunks) {
    Table table = chunks.whole.hasBase() ? this : new Table();
    return table.take(chunks.whole.build()) ? table : null;
  }

  /** The chunks of one SyncState as one delta. */
  static final class Chunks {
    private final StateDelta.Builder whole = StateDelta.newBuilder();
    int count;

    void add(SyncStateRequest request) {
      whole.mergeFrom(request.getChunk()); // adds to the lists, and takes what the last chunk alone has
      count++;
    }
  }

  private void put(int index, Node node) {
    Node old = node == null ? nodes.remove(index) : nodes.put(index, node);
    indices.set(index, node != null);
    sum += (node == null ? 0 : node.generation()) - (old == null ? 0 : old.generation());
    sum = Math.floorMod(sum, MODULUS);
  }

  /** Returns the indices of the nodes of a set. A BitSet has the bits of NodeSet.bitmap, in the same order. */
  BitSet chosen(NodeSet set) {
    BitSet chosen = (BitSet) indices.clone();
    BitSet listed = BitSet.valueOf(set.getBitmap().toByteArray());
    if (set.getComplement()) {
      chosen.andNot(listed);
    } else {
      chosen.and(listed);
    }
    return chosen;
  }
}
