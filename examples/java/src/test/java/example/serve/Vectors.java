package example.serve;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.GeneratedMessageV3;
import com.google.protobuf.Message;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;

/** The vectors of the contract. */
public final class Vectors {
  private Vectors() {}

  public static JsonObject file(String name) throws IOException {
    Path path = Path.of(System.getProperty("proto"), "vectors", name);
    return JsonParser.parseString(Files.readString(path)).getAsJsonObject();
  }

  public static List<JsonObject> list(JsonElement array) {
    List<JsonObject> found = new ArrayList<>();
    array.getAsJsonArray().forEach(one -> found.add(one.getAsJsonObject()));
    return found;
  }

  public static List<Integer> integers(JsonElement array) {
    List<Integer> found = new ArrayList<>();
    array.getAsJsonArray().forEach(one -> found.add(one.getAsInt()));
    return found;
  }

  /** Reads a message from its bytes, with the class that its type names. */
  @SuppressWarnings("unchecked")
  public static <T extends Message> T message(JsonObject vector) throws Exception {
    byte[] bytes = vector.has("hex")
        ? HexFormat.of().parseHex(vector.get("hex").getAsString())
        : Base64.getDecoder().decode(vector.get("base64").getAsString());
    Class<?> type = Class.forName("io." + vector.get("type").getAsString());
    Message prototype = (Message) type.asSubclass(GeneratedMessageV3.class).getMethod("getDefaultInstance").invoke(null);
    return (T) prototype.newBuilderForType().mergeFrom(bytes).build();
  }
}
