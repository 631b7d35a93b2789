//! Slots limits how many pods are bound at one time, and lets pods wait for company.
//!
//! `slots.example.com/use: "true"` on the pod: it takes one of the slots until it is bound.
//! `slots.example.com/wait: "true"` on the pod: it waits until another pod of its namespace takes a slot.
//! `slots.example.com/slot: "2"` on the pod, before it is bound: the number of its slot, from 1.

mod cycles;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cycles::Cycles;
use prost_types::value::Kind;
use serve::contract::handle_service_client::HandleServiceClient;
use serve::contract::plugin_status::Code;
use serve::contract::scheduling_service_server::{SchedulingService, SchedulingServiceServer};
use serve::contract::state_service_server::{StateService, StateServiceServer};
use serve::contract::*;
use serve::{Answer, Attachments, agree, agreed, by_profile, done};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

const NAME: &str = "Slots";
const LONGEST_WAIT_S: i64 = 30;

#[derive(Default)]
struct State {
    cycles: Cycles,
    slots: HashMap<String, u32>,       // the argument, by profile
    handle: Option<(Channel, String)>, // to HandleService, with its token; None: the host offers none
}

#[derive(Clone, Default)]
struct Slots {
    attachments: Arc<Attachments>,
    state: Arc<Mutex<State>>,
}

fn number_of_slots(args: &prost_types::Struct) -> Result<u32, String> {
    match args.fields.get("slots").and_then(|value| value.kind.as_ref()) {
        Some(Kind::NumberValue(number)) if *number >= 1.0 && number.fract() == 0.0 => Ok(*number as u32),
        _ => Err("slots: must be a whole number above 0".into()),
    }
}

fn decided(cycle_id: &str, code: Code, reasons: &[&str]) -> ReplyContext {
    let reasons = reasons.iter().map(|reason| reason.to_string()).collect();
    let status = Some(PluginStatus { code: code.into(), reasons });
    ReplyContext { cycle_id: cycle_id.into(), status, ..Default::default() }
}

fn pod(ctx: &CallContext) -> PodSummary {
    ctx.pod.clone().and_then(|pod| pod.summary).unwrap_or_default()
}

fn says(pod: &PodSummary, annotation: &str) -> bool {
    pod.annotations.get(annotation).is_some_and(|value| value == "true")
}

impl Slots {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn configure(&self, request: &ConfigureRequest) -> Result<(), String> {
        let slots = by_profile(request, number_of_slots)?;
        let mut handle = None;
        if let Some(given) = &request.handle {
            let is_unix = given.target.starts_with("unix:");
            let target = if is_unix { given.target.clone() } else { format!("http://{}", given.target) };
            let endpoint = Endpoint::from_shared(target).map_err(|error| format!("handle.target: {error}"))?;
            handle = Some((endpoint.connect_lazy(), given.token.clone()));
        }
        let mut state = self.state();
        (state.slots, state.handle) = (slots, handle);
        Ok(())
    }

    /// Allow the other pods that wait in a namespace. If the call fails, they wait for the next Reserve or for the end of
    /// their time. The answer of Reserve does not wait for the host.
    fn allow_others(&self, state: &State, namespace: &str, uid: &str) {
        let waiting = state.cycles.waiting(namespace, uid);
        let Some((channel, token)) = state.handle.clone().filter(|_| !waiting.is_empty()) else { return };
        let allow = |(cycle_id, pod_uid): (String, String)| WaitDecision {
            pod_uid,
            cycle_id,
            verdict: wait_decision::Verdict::Allow.into(),
            ..Default::default()
        };
        let decisions: Vec<WaitDecision> = waiting.into_iter().map(allow).collect();
        let this = self.clone();
        tokio::spawn(async move {
            let mut request =
                Request::new(DecideWaitingPodsRequest { plugin: NAME.into(), decisions: decisions.clone() });
            request.set_timeout(Duration::from_secs(5));
            let bearer = format!("Bearer {token}").parse().expect("a token is text");
            request.metadata_mut().insert("authorization", bearer);
            request.metadata_mut().insert("berth-plugin", NAME.parse().expect("the name is text"));
            match HandleServiceClient::new(channel).decide_waiting_pods(request).await {
                Ok(_) => decisions.iter().for_each(|one| this.state().cycles.waits_no_more(&one.cycle_id)),
                Err(error) => eprintln!("the pods that wait could not be allowed: {error}"),
            }
        });
    }
}

#[tonic::async_trait]
impl SchedulingService for Slots {
    async fn reserve(&self, request: Request<ReserveRequest>) -> Answer<ReserveResponse> {
        let request = agreed(request)?;
        let ctx = self.attachments.context(&request.ctx)?;
        let (id, pod, mut state) = (&ctx.cycle_id, pod(ctx), self.state());
        state.cycles.ended(&ctx.ended);
        let reply = |code, reasons: &[&str]| {
            Ok(Response::new(ReserveResponse { ctx: Some(decided(id, code, reasons)), ..Default::default() }))
        };
        if state.cycles.is_over(id) {
            return reply(Code::Error, &["the cycle is over"]);
        }
        if !says(&pod, "slots.example.com/use") {
            return reply(Code::Skip, &[]);
        }
        let slots = state.slots.get(&ctx.profile).copied().unwrap_or_default();
        let owner = pod.r#ref.unwrap_or_default();
        let is_new = !state.cycles.knows(id);
        let slot = state.cycles.reserve(id, &owner, slots);
        if slot == 0 {
            return reply(Code::Unschedulable, &["no slot is free"]);
        }
        let is_tentative = request.trial.as_ref().is_some_and(|trial| trial.tentative);
        if is_new && !is_tentative {
            self.allow_others(&state, &owner.namespace, &owner.uid);
        }
        let mut answer = decided(id, Code::Success, &[]);
        answer.plugin_token = Some(slot.to_string().into_bytes());
        Ok(Response::new(ReserveResponse { ctx: Some(answer), ..Default::default() }))
    }

    async fn unreserve(&self, request: Request<UnreserveRequest>) -> Answer<UnreserveResponse> {
        let request = agreed(request)?;
        self.attachments.check(&request)?;
        let done_cycle_ids: Vec<String> = request.items.into_iter().map(|item| item.cycle_id).collect();
        done_cycle_ids.iter().for_each(|id| self.state().cycles.end(id));
        Ok(Response::new(UnreserveResponse { done_cycle_ids }))
    }

    async fn permit(&self, request: Request<PermitRequest>) -> Answer<PermitResponse> {
        let request = agreed(request)?;
        let ctx = self.attachments.context(&request.ctx)?;
        let (id, pod, mut state) = (&ctx.cycle_id, pod(ctx), self.state());
        state.cycles.ended(&ctx.ended);
        let mut answer = PermitResponse::default();
        if state.cycles.is_over(id) {
            answer.ctx = Some(decided(id, Code::Error, &["the cycle is over"]));
        } else if says(&pod, "slots.example.com/wait") {
            state.cycles.wait(id, &pod.r#ref.unwrap_or_default());
            answer.ctx = Some(decided(id, Code::Wait, &["waits for another pod of its namespace"]));
            answer.wait_timeout = Some(prost_types::Duration { seconds: LONGEST_WAIT_S, nanos: 0 });
        } else {
            answer.ctx = Some(decided(id, Code::Success, &[]));
        }
        Ok(Response::new(answer))
    }

    async fn pre_bind_pre_flight(&self, request: Request<PreBindPreFlightRequest>) -> Answer<PreBindPreFlightResponse> {
        let request = agreed(request)?;
        let ctx = self.attachments.context(&request.ctx)?;
        let code = if ctx.plugin_token.is_empty() { Code::Skip } else { Code::Success };
        let ctx = Some(decided(&ctx.cycle_id, code, &[]));
        Ok(Response::new(PreBindPreFlightResponse { ctx, ..Default::default() }))
    }

    /// Write the number of the slot, which is the token of the cycle, to the pod.
    async fn pre_bind(&self, request: Request<PreBindRequest>) -> Answer<PreBindResponse> {
        let request = agreed(request)?;
        let ctx = self.attachments.context(&request.ctx)?;
        let mut answer =
            PreBindResponse { ctx: Some(decided(&ctx.cycle_id, Code::Success, &[])), ..Default::default() };
        if let Some(patched) = request.patched.first() {
            if patched.outcome() != patch_result::Outcome::Applied {
                let reason = format!("the slot could not be written to the pod: {}", patched.message);
                answer.ctx = Some(decided(&ctx.cycle_id, Code::Error, &[&reason]));
            }
        } else if !ctx.plugin_token.is_empty() {
            let slot = String::from_utf8_lossy(&ctx.plugin_token);
            let patch = serde_json::json!({"metadata": {"annotations": {"slots.example.com/slot": slot}}});
            answer.done_when_applied = true;
            answer.patches = vec![ObjectPatch {
                resource: "pods".into(),
                r#ref: pod(ctx).r#ref,
                merge_patch_json: patch.to_string().into_bytes(),
                action: object_patch::Action::Merge.into(),
                ..Default::default()
            }];
        }
        Ok(Response::new(answer))
    }

    async fn post_bind(&self, request: Request<PostBindRequest>) -> Answer<PostBindResponse> {
        let request = agreed(request)?;
        self.attachments.check(&request)?;
        request.items.iter().for_each(|item| self.state().cycles.end(&item.cycle_id));
        done()
    }

    async fn end_cycles(&self, request: Request<EndCyclesRequest>) -> Answer<EndCyclesResponse> {
        let request = agreed(request)?;
        self.attachments.check(&request)?;
        self.state().cycles.ended(&request.ended);
        done()
    }
}

#[tonic::async_trait]
impl StateService for Slots {
    async fn reconcile(&self, request: Request<Streaming<ReconcileRequest>>) -> Answer<ReconcileResponse> {
        let (metadata, _, mut stream) = request.into_parts();
        let (mut live, mut expected, mut is_complete) = (vec![], 0, false);
        while let Some(page) = stream.message().await? {
            agree(&metadata, &page)?;
            self.attachments.check(&page)?;
            if is_complete || page.sequence != expected {
                return Err(Status::invalid_argument(format!("page {} came in place of {expected}", page.sequence)));
            }
            expected += 1;
            live.extend(page.live);
            is_complete = page.last;
        }
        if !is_complete {
            return Err(Status::invalid_argument("the stream ended before its last page"));
        }
        let unknown_cycle_ids = self.state().cycles.keep(&live);
        Ok(Response::new(ReconcileResponse { unknown_cycle_ids }))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let points = [ExtensionPoint::Reserve, ExtensionPoint::Permit, ExtensionPoint::PreBind, ExtensionPoint::PostBind];
    let me = PluginDescriptor {
        name: NAME.into(),
        points: points.map(i32::from).to_vec(),
        handle_client: true,
        // No call comes about a pod with neither annotation. The methods read them all the same: a host may ask about
        // more.
        scope: Some(PodScope {
            terms: vec![PodScopeTerm {
                annotation_keys: vec!["slots.example.com/use".into(), "slots.example.com/wait".into()],
                ..Default::default()
            }],
        }),
        ..Default::default()
    };
    let plugin = Slots::default();
    let (attachments, configured) = (plugin.attachments.clone(), plugin.clone());
    let services = |router: tonic::transport::server::Router| {
        router.add_service(SchedulingServiceServer::new(plugin.clone())).add_service(StateServiceServer::new(plugin))
    };
    serve::plugin(me, attachments, move |request| configured.configure(request), services).await
}
