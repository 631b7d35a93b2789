package example.binding;

import io.berth.plugin.v1.CycleEnd;
import io.berth.plugin.v1.LiveReservation;
import io.berth.plugin.v1.ObjectRef;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** What the plugin holds for each cycle, and which cycles are over. */
final class Cycles {
  private static final long REMEMBERED = Duration.ofMinutes(5).toNanos(); // that a cycle is over, for a Reserve that comes late

  /**
   * What is held for one cycle. The token of the cycle is the number of its slot, so that a restarted process takes the slot
   * up.
   */
  static final class Held {
    final ObjectRef pod;
    int slot; // 0: none
    boolean isReserved;
    boolean isPermitted; // by a first Permit, which may have let the pod wait
    boolean isWaiting;

    Held(ObjectRef pod) {
      this.pod = pod;
    }
  }

  private Map<String, Held> held = new HashMap<>();
  private final Map<String, Long> over = new LinkedHashMap<>(); // when each cycle ended, the oldest first

  private Held of(String id, ObjectRef pod) {
    return held.computeIfAbsent(id, unused -> new Held(pod));
  }

  /** Returns true if Reserve was answered before. */
  boolean isReserved(String id) {
    return held.containsKey(id) && held.get(id).isReserved;
  }

  boolean isOver(String id) {
    return over.containsKey(id);
  }

  /** Takes the lowest free slot; a cycle that asks again gets the first answer. Returns 0 if none is free. */
  int reserve(String id, ObjectRef pod, int slots) {
    Held one = of(id, pod);
    if (!one.isReserved) {
      Set<Integer> taken = new HashSet<>();
      held.values().forEach(other -> taken.add(other.slot));
      one.isReserved = true;
      for (int slot = slots; slot > 0; slot--) {
        one.slot = taken.contains(slot) ? one.slot : slot;
      }
    }
    return one.slot;
  }

  /** Lets a pod wait. A duplicate of a Permit whose pod was allowed since does not begin a second wait. */
  void await(String id, ObjectRef pod) {
    Held one = of(id, pod);
    one.isWaiting |= !one.isPermitted;
    one.isPermitted = true;
  }

  /** Returns the cycles of the other pods that wait in the namespace of a pod, each with the uid of its pod. */
  Map<String, String> waiting(ObjectRef pod) {
    Map<String, String> found = new HashMap<>();
    held.forEach((id, one) -> {
      boolean isOther = one.pod.getNamespace().equals(pod.getNamespace()) && !one.pod.getUid().equals(pod.getUid());
      if (one.isWaiting && isOther) {
        found.put(id, one.pod.getUid());
      }
    });
    return found;
  }

  void waitsNoMore(String id) {
    if (held.containsKey(id)) {
      held.get(id).isWaiting = false;
    }
  }

  /** Gives back what a cycle holds. A cycle that is not known counts as given back. */
  void end(String id) {
    held.remove(id);
    long now = System.nanoTime();
    var oldest = over.values().iterator();
    while (oldest.hasNext() && now - oldest.next() > REMEMBERED) {
      oldest.remove();
    }
    over.putIfAbsent(id, now);
  }

  /** Drops the cycles that are bound or hold no slot. Of the others the host says so itself, by Unreserve. */
  void ended(List<CycleEnd> cycles) {
    for (CycleEnd end : cycles) {
      Held one = held.get(end.getCycleId());
      if (one != null && (one.slot == 0 || end.getOutcome() == CycleEnd.Outcome.OUTCOME_BOUND)) {
        end(end.getCycleId());
      }
    }
  }

  /** Keeps exactly the cycles that are live. Returns those whose slot is neither remembered nor in the token. */
  List<String> keep(List<LiveReservation> live) {
    Map<String, Held> before = held;
    List<String> unknown = new ArrayList<>();
    held = new HashMap<>();
    for (LiveReservation one : live) {
      Held kept = before.get(one.getCycleId());
      if (kept == null) {
        kept = new Held(one.getPod());
        String token = one.getPluginToken().toStringUtf8();
        if (!token.matches("[0-9]{0,9}")) {
          unknown.add(one.getCycleId());
          continue;
        }
        kept.slot = token.isEmpty() ? 0 : Integer.parseInt(token);
        kept.isReserved = true;
      }
      kept.isWaiting = one.getWaitingOnPermit();
      held.put(one.getCycleId(), kept);
      over.remove(one.getCycleId());
    }
    before.keySet().removeAll(held.keySet());
    before.keySet().forEach(this::end);
    return unknown;
  }
}
