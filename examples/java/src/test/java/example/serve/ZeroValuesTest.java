package example.serve;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.MapEntry;
import com.google.protobuf.Message;
import com.google.protobuf.TextFormat;
import io.berth.plugin.v1.PluginStatus;
import java.util.Base64;
import java.util.List;
import org.junit.jupiter.api.Test;

/** How the generated code shows zero values, unknown values and unknown fields, by the vectors of the contract. */
class ZeroValuesTest {
  @Test
  void everyFieldReadsAsInTheVectors() throws Exception {
    JsonObject file = Vectors.file("zero_values.json");
    for (JsonObject vector : Vectors.list(file.get("messages"))) {
      check(vector, Vectors.message(vector.getAsJsonObject("message")));
    }
    for (JsonObject vector : Vectors.list(file.get("unknown"))) {
      check(vector, Vectors.message(vector));
    }
  }

  @Test
  void unknownCodeIsUnrecognizedAndKeepsItsNumber() {
    PluginStatus status = PluginStatus.newBuilder().setCodeValue(99).build();
    assertEquals(PluginStatus.Code.UNRECOGNIZED, status.getCode());
    assertEquals(99, status.getCodeValue());
  }

  @Test
  void unknownFieldIsKept() throws Exception {
    for (JsonObject vector : Vectors.list(Vectors.file("zero_values.json").get("unknown"))) {
      Message message = Vectors.message(vector);
      if (!message.getUnknownFields().asMap().isEmpty()) {
        byte[] again = message.toBuilder().build().toByteArray();
        assertEquals(vector.get("hex").getAsString().length() / 2, again.length);
        assertArrayEquals(message.toByteArray(), again);
      }
    }
  }

  /** What README.md says of secrets. With a library that leaves them out, this fails: then change the page. */
  @Test
  void debugPrintShowsSecrets() throws Exception {
    int secrets = 0;
    for (JsonObject vector : Vectors.list(Vectors.file("zero_values.json").get("messages"))) {
      if (vector.get("name").getAsString().startsWith("a secret")) {
        Message message = Vectors.message(vector.getAsJsonObject("message"));
        assertTrue(message.toString().contains("open-sesame"));
        assertTrue(TextFormat.printer().printToString(message).contains("open-sesame"));
        secrets++;
      }
    }
    assertEquals(2, secrets);
  }

  private static void check(JsonObject vector, Message whole) {
    for (JsonObject expected : Vectors.list(vector.get("fields"))) {
      Message message = whole;
      FieldDescriptor field = null;
      for (String name : expected.get("path").getAsString().split("\\.")) {
        message = field == null ? message : (Message) message.getField(field);
        field = message.getDescriptorForType().findFieldByName(name);
      }
      String where = vector.get("name").getAsString() + ": " + expected.get("path").getAsString();
      if (expected.has("present")) {
        assertEquals(expected.get("present").getAsBoolean(), message.hasField(field), where);
      }
      if (expected.has("value")) {
        assertEquals(normal(expected.get("value")), json(message.getField(field)), where);
      }
      if (expected.has("enum")) {
        assertEquals(expected.get("enum").getAsString(), ((EnumValueDescriptor) message.getField(field)).getName(), where);
      }
    }
  }

  /** Returns a value of a field as the vectors write it. */
  private static JsonElement json(Object value) {
    if (value instanceof EnumValueDescriptor one) {
      return new JsonPrimitive((long) one.getNumber());
    } else if (value instanceof ByteString bytes) {
      return new JsonPrimitive(Base64.getEncoder().encodeToString(bytes.toByteArray()));
    } else if (value instanceof Number number) {
      return new JsonPrimitive(number.longValue());
    } else if (value instanceof Boolean flag) {
      return new JsonPrimitive(flag);
    } else if (value instanceof List<?> list) {
      JsonArray array = new JsonArray();
      JsonObject map = new JsonObject();
      for (Object one : list) {
        if (one instanceof MapEntry<?, ?> entry) {
          map.add(entry.getKey().toString(), json(entry.getValue()));
        } else {
          array.add(json(one));
        }
      }
      return map.size() > 0 ? map : array;
    }
    return new JsonPrimitive(value.toString());
  }

  /** Returns an empty map as an empty list, which is how the reflection of protobuf shows it. */
  private static JsonElement normal(JsonElement value) {
    if (value.isJsonObject() && value.getAsJsonObject().size() == 0) {
      return new JsonArray();
    }
    return value;
  }
}
