package example.bitmaps;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import example.serve.Vectors;
import io.berth.plugin.v1.NodeSet;
import io.berth.plugin.v1.NodeState;
import io.berth.plugin.v1.Scenario;
import io.berth.plugin.v1.Scores;
import io.berth.plugin.v1.StateDelta;
import io.berth.plugin.v1.StateVersion;
import io.berth.plugin.v1.SyncStateRequest;
import io.berth.plugin.v1.SyncStateResponse;
import java.util.Base64;
import java.util.BitSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** The table of nodes, by the vectors of the contract. */
class TableTest {
  private static final NodeSet ALL = NodeSet.newBuilder().setComplement(true).build();

  @Test
  void tableIsThatOfTheVectorsAfterEveryStep() throws Exception {
    for (JsonObject vector : Vectors.list(Vectors.file("state.json").get("cases"))) {
      String name = vector.get("name").getAsString();
      if (Vectors.list(vector.get("steps")).stream().anyMatch(TableTest::hasObjects)) {
        continue; // FreeCpu declares no objects
      }
      Table table = new Table();
      for (JsonObject step : Vectors.list(vector.get("steps"))) {
        String outcome = step.get("outcome").getAsString();
        boolean isTaken;
        if (step.get("in").getAsString().equals("call")) {
          StateDelta delta = Vectors.message(step.getAsJsonObject("delta"));
          if (outcome.equals("held")) {
            assertEquals(delta.getTarget(), table.version(), name);
          }
          isTaken = table.take(delta);
        } else {
          Table.Chunks chunks = new Table.Chunks();
          for (JsonObject chunk : Vectors.list(step.get("chunks"))) {
            SyncStateRequest request = Vectors.message(chunk);
            assertEquals(chunks.count, request.getSequence(), name);
            chunks.add(request);
          }
          Table synced = table.synced(chunks);
          isTaken = synced != null;
          table = isTaken ? synced : table;
          SyncStateResponse answer = Vectors.message(step.getAsJsonObject("answer"));
          assertEquals(answer.getNeedFull(), !isTaken, name);
          assertEquals(answer.hasHave() ? answer.getHave() : null, table.version(), name);
        }
        assertEquals(!outcome.equals("missing"), isTaken, name);
        if (step.get("copy").isJsonNull()) {
          assertEquals(null, table.version(), name);
        } else {
          JsonObject copy = step.getAsJsonObject("copy");
          JsonObject version = copy.getAsJsonObject("version");
          assertEquals(StateVersion.newBuilder().setEpoch(version.get("epoch").getAsLong())
              .setGeneration(version.get("generation").getAsLong()).build(), table.version(), name);
          Map<Integer, Long> expected = new TreeMap<>();
          Map<Integer, Long> found = new TreeMap<>();
          for (JsonObject node : Vectors.list(copy.get("nodes"))) {
            expected.put(node.get("index").getAsInt(), cpu(node, "allocatable") - cpu(node, "requested"));
          }
          for (int index : table.chosen(ALL).stream().toArray()) {
            found.put(index, table.node(index).free());
          }
          assertEquals(expected, found, name);
        }
      }
    }
  }

  private static boolean hasObjects(JsonObject step) {
    return step.get("copy").isJsonObject() && step.getAsJsonObject("copy").get("object_count").getAsInt() > 0;
  }

  private static long cpu(JsonObject node, String part) {
    JsonObject amounts = node.getAsJsonObject(part);
    return amounts.has("cpu") ? amounts.get("cpu").getAsLong() : 0;
  }

  @Test
  void setsHoldTheNodesOfTheVectors() throws Exception {
    JsonObject file = Vectors.file("node_sets.json");
    for (JsonObject vector : Vectors.list(file.get("bitmaps"))) {
      BitSet bits = BitSet.valueOf(HexFormat.of().parseHex(vector.get("hex").getAsString()));
      assertEquals(Vectors.integers(vector.get("indices")), bits.stream().boxed().toList());
    }
    for (JsonObject vector : Vectors.list(file.get("sets"))) {
      NodeSet set = Vectors.message(vector.getAsJsonObject("set"));
      if (set.getNamesCount() == 0) {
        Table table = of(Vectors.integers(vector.get("within")));
        assertEquals(Vectors.integers(vector.get("indices")), table.chosen(set).stream().boxed().toList());
      }
    }
  }

  private static Table of(List<Integer> indices) {
    StateDelta.Builder delta = StateDelta.newBuilder().setNodeCount(indices.size()).setGenerationSum(indices.size());
    delta.getTargetBuilder().setEpoch(1);
    indices.forEach(index -> delta.addUpserts(NodeState.newBuilder().setIndex(index).setName("n").setGeneration(1)));
    Table table = new Table();
    assertEquals(true, table.take(delta.build()));
    return table;
  }

  @Test
  void digestsAreThoseOfTheVectors() throws Exception {
    for (JsonObject vector : Vectors.list(Vectors.file("digests.json").get("cases"))) {
      String name = vector.get("name").getAsString();
      List<JsonObject> steps = Vectors.list(vector.get("steps"));
      if (steps.stream().anyMatch(step -> step.get("object_count").getAsInt() > 0)) {
        continue; // FreeCpu declares no objects
      }
      after(steps, name);
      for (JsonObject wrong : Vectors.list(vector.get("wrong"))) {
        Table table = after(steps.subList(0, steps.size() - 1), name);
        String where = name + ": " + wrong.get("why").getAsString();
        assertFalse(table.take(Vectors.message(wrong.getAsJsonObject("delta"))), where);
      }
    }
  }

  private static Table after(List<JsonObject> steps, String name) throws Exception {
    Table table = new Table();
    for (JsonObject step : steps) {
      assertTrue(table.take(Vectors.message(step.getAsJsonObject("delta"))), name);
    }
    return table;
  }

  @Test
  void freeCpuOfAScenarioIsThatOfTheVectors() throws Exception {
    JsonObject file = Vectors.file("scenarios.json");
    Table table = new Table();
    assertTrue(table.take(Vectors.message(file.getAsJsonObject("state"))));
    for (JsonObject vector : Vectors.list(file.get("scenarios"))) {
      Scenario scenario = Vectors.message(vector.getAsJsonObject("by_index"));
      Table.Node node = table.node(scenario.getNode().getNodeIndex()).using(scenario.getNode().getUsage());
      assertEquals(vector.getAsJsonObject("free").get("cpu").getAsLong(), node.free(), vector.get("name").getAsString());
    }
  }

  @Test
  void denseScoresAreThoseOfTheVectors() throws Exception {
    List<JsonObject> forms = Vectors.list(Vectors.file("scores.json").get("forms")).stream()
        .filter(form -> form.get("name").getAsString().startsWith("dense")).toList();
    assertFalse(forms.isEmpty());
    for (JsonObject form : forms) {
      Scores.Builder scores = Scores.newBuilder();
      form.get("scores").getAsJsonArray().forEach(score -> scores.addDense(score.getAsLong()));
      String bytes = Base64.getEncoder().encodeToString(scores.build().toByteArray());
      assertEquals(form.getAsJsonObject("message").get("base64").getAsString(), bytes);
    }
  }
}
