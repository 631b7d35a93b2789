// What every plugin needs beside its decisions: the introduction to the host, and the server.

import * as grpc from "@grpc/grpc-js";
import { randomUUID, timingSafeEqual } from "node:crypto";
import { rmSync } from "node:fs";
import { connect } from "node:net";
import type { CallContext } from "./generated/berth/plugin/v1/common.js";
import * as identity from "./generated/berth/plugin/v1/identity.js";
import { type QueueServiceServer, QueueServiceService } from "./generated/berth/plugin/v1/queue.js";
import { type SchedulingServiceServer, SchedulingServiceService } from "./generated/berth/plugin/v1/scheduling.js";
import { type StateServiceServer, StateServiceService } from "./generated/berth/plugin/v1/state.js";

const MAX_MESSAGE_BYTES = 64 << 20;
const NAMED = 64; // ids of attachments that a plugin remembers

/** An error with a gRPC code. */
export class Refusal extends Error {
  constructor(readonly code: grpc.status, readonly details: string) {
    super(details);
  }
}

/** What names an attachment, and a plugin: requests of cycles do it in `ctx`. */
type Attached = { ctx?: CallContext | undefined; attachmentId?: string; plugin?: string };

const named: string[] = [];
let attached = "";
let served: identity.PluginArgs[] = []; // of the last Configure that was accepted

function check(request: Attached): void {
  const id = request.ctx?.attachmentId ?? request.attachmentId ?? "";
  if (id === "" || id !== attached) {
    throw new Refusal(grpc.status.PERMISSION_DENIED, "the attachment_id is not that of the last accepted Configure");
  }
  const plugin = request.ctx?.plugin ?? request.plugin;
  const profile = request.ctx?.profile;
  if (!served.some((one) => (plugin ?? one.name) === one.name && (profile ?? one.profile) === one.profile)) {
    throw new Refusal(grpc.status.INVALID_ARGUMENT, "the last accepted Configure named no such plugin or profile");
  }
}

/** Refuse a request whose metadata names another attachment or plugin: an interceptor may have read the metadata. */
function agree(metadata: grpc.Metadata, request: Attached): void {
  const { attachmentId, plugin } = request.ctx ?? request;
  for (const [key, name] of Object.entries({ "berth-attachment-id": attachmentId, "berth-plugin": plugin })) {
    if (name !== undefined && metadata.get(key).some((beside) => beside !== name)) {
      throw new Refusal(grpc.status.INVALID_ARGUMENT, `the metadata ${key} differs from the request`);
    }
  }
}

/** Send the answer of `decide`. An exception needs a code: without one, grpc-js would end the call without a status. */
function settle<A>(callback: grpc.sendUnaryData<A>, decide: () => A): void {
  try {
    callback(null, decide());
  } catch (error) {
    const code = error instanceof Refusal ? error.code : grpc.status.INTERNAL;
    callback({ code, details: error instanceof Error ? error.message : String(error) });
  }
}

/** Make a call of a function. */
export function unary<Q extends Attached, A>(decide: (request: Q) => A): grpc.handleUnaryCall<Q, A> {
  return (call, callback) =>
    settle(callback, () => {
      agree(call.metadata, call.request);
      check(call.request);
      return decide(call.request);
    });
}

/** Make a call with a stream of numbered requests of a function, which gets all of them. */
export function streamed<Q extends Attached & { sequence: number; last: boolean }, A>(
  decide: (requests: Q[]) => A,
): grpc.handleClientStreamingCall<Q, A> {
  return (call, callback) => {
    const requests: Q[] = [];
    call.on("data", (request: Q) => requests.push(request));
    call.on("end", () =>
      settle(callback, () => {
        requests.forEach((request, index) => {
          agree(call.metadata, request);
          check(request);
          if (request.sequence !== index || request.last !== (index === requests.length - 1)) {
            throw new Refusal(grpc.status.INVALID_ARGUMENT, `number ${request.sequence} came in the place of ${index}`);
          }
        });
        if (requests.length === 0) throw new Refusal(grpc.status.INVALID_ARGUMENT, "the stream is empty");
        return decide(requests);
      }),
    );
  };
}

function introduction(me: identity.PluginDescriptor, configure: (request: identity.ConfigureRequest) => string) {
  const instanceId = randomUUID();
  const hello = identity.HandshakeResponse.fromPartial({
    supported: [{ major: 1 }],
    plugins: [me],
    instanceId,
    startedAt: new Date(),
    maxMessageBytes: BigInt(MAX_MESSAGE_BYTES),
  });
  const secret = Buffer.from(process.env.BERTH_PLUGIN_CREDENTIAL ?? "");
  const service: identity.IdentityServiceServer = {
    handshake: (call, callback) =>
      settle(callback, () => {
        agree(call.metadata, call.request);
        const sent = Buffer.from(call.request.credential);
        if (secret.length > 0 && (sent.length !== secret.length || !timingSafeEqual(sent, secret))) {
          throw new Refusal(grpc.status.UNAUTHENTICATED, "the credential is not that of BERTH_PLUGIN_CREDENTIAL");
        }
        named.push(call.request.attachmentId);
        named.splice(0, named.length - NAMED);
        return hello;
      }),
    configure: (call, callback) =>
      settle(callback, () => {
        agree(call.metadata, call.request);
        if (!named.includes(call.request.attachmentId)) {
          throw new Refusal(grpc.status.PERMISSION_DENIED, "no Handshake named this attachment_id");
        }
        const error = call.request.accepted ? configure(call.request) : "";
        if (call.request.accepted && error === "") {
          attached = call.request.attachmentId;
          served = call.request.plugins;
        }
        return identity.ConfigureResponse.fromPartial({ error });
      }),
    probe: unary(() => identity.ProbeResponse.fromPartial({ ready: true, instanceId })),
    drain: unary(() => identity.DrainResponse.fromPartial({})),
  };
  return { service, instanceId };
}

/**
 * Serve one plugin until the host ends, or until a signal ends the process. `configure` returns what is wrong with the
 * arguments; "": nothing. `scheduling`, `state` and `queue` have the calls of the plugin's points.
 */
export async function serve(
  me: identity.PluginDescriptor,
  configure: (request: identity.ConfigureRequest) => string,
  scheduling: Partial<SchedulingServiceServer>,
  state: Partial<StateServiceServer> = {},
  queue: Partial<QueueServiceServer> = {},
): Promise<void> {
  const { service, instanceId } = introduction(me, configure);
  const server = new grpc.Server({ "grpc.max_receive_message_length": MAX_MESSAGE_BYTES });
  server.addService(identity.IdentityServiceService, service);
  // grpc-js answers UNIMPLEMENTED to the calls that are not there.
  server.addService(SchedulingServiceService, scheduling as grpc.UntypedServiceImplementation);
  server.addService(StateServiceService, state as grpc.UntypedServiceImplementation);
  server.addService(QueueServiceService, queue as grpc.UntypedServiceImplementation);
  const endpoint = process.env.BERTH_PLUGIN_ENDPOINT ?? "";
  const isSocket = endpoint.startsWith("unix://");
  if (isSocket) await removeDeadSocket(endpoint.slice("unix://".length));
  const plaintext = grpc.ServerCredentials.createInsecure();
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync(endpoint, plaintext, (error, at) => (error ? reject(error) : resolve(at))),
  ).catch((error: Error) => {
    const cure = "set it to unix:///absolute/path or host:port";
    console.error(`BERTH_PLUGIN_ENDPOINT "${endpoint}": ${error.message}; ${cure}`);
    return process.exit(1);
  });
  const address = isSocket ? endpoint : `${endpoint.slice(0, endpoint.lastIndexOf(":"))}:${port}`;
  const cookie = process.env.BERTH_PLUGIN_COOKIE;
  console.log(JSON.stringify({ protocol: "berth/1", address, instance_id: instanceId, cookie: cookie ?? "" }));
  if (cookie !== undefined) {
    // The host holds the other end: this process ends with the host.
    process.stdin.resume().on("end", () => process.exit(0));
  }
}

/** Remove a socket on which no process listens. */
function removeDeadSocket(path: string): Promise<void> {
  return new Promise((resolve) => {
    const probe = connect(path, () => {
      probe.destroy();
      resolve();
    }).on("error", () => {
      rmSync(path, { force: true });
      resolve();
    });
  });
}
