//! SamplePlugin is a scheduling plugin for berth. Say here what it is for.
//!
//! It is in NAMES mode: each call has the complete pod and the names of the nodes, and the plugin keeps no copy of the
//! cluster.

mod places; //[reserve]
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::{Mutex, MutexGuard}; //[reserve]

use places::Places; //[reserve]
use serve::agree; //[reserve]
use serve::by_profile; //[reserve]
//[preEnqueue,filter,postFilter,preScore,reserve,permit,preBind,bind]
use serve::contract::plugin_status::Code;
//[/]
//[queue]
use serve::contract::queue_service_server::{QueueService, QueueServiceServer};
//[/]
//[cycle]
use serve::contract::scheduling_service_server::{SchedulingService, SchedulingServiceServer};
//[/]
//[reserve]
use serve::contract::state_service_server::{StateService, StateServiceServer};
//[/]
use serve::contract::*;
//[cycle]
use serve::done;
//[/]
use serve::{Answer, Attachments, agreed};
use tonic::Request;
//[queue,preFilter,filter,postFilter,preScore,score,normalizeScore,reserve,permit,preBind,bind]
use tonic::Response;
//[/]
//[preFilter,filter,postFilter,preScore,score,normalizeScore,reserve,permit,preBind,bind]
use tonic::Status;
//[/]
use tonic::Streaming; //[reserve]

/// What the configuration of the scheduler calls the plugin.
const NAME: &str = "SamplePlugin";
//[preEnqueue]
/// Keeps a pod out of the queue.
const HOLD: &str = "sample-plugin.example.com/hold";
//[/]
//[preFilter]
/// Lists the nodes that a pod may run on, separated by commas.
const ONLY: &str = "sample-plugin.example.com/only";
//[/]
//[filter]
/// Lists the nodes that a pod must not run on, separated by commas.
const AVOID: &str = "sample-plugin.example.com/avoid";
//[/]
//[preScore]
/// Makes the plugin leave the order of the nodes to others.
const UNRANKED: &str = "sample-plugin.example.com/unranked";
//[/]
//[score]
/// Lists the nodes that a pod would like best, separated by commas.
const PREFER: &str = "sample-plugin.example.com/prefer";
//[/]
//[permit]
/// The number of seconds that a pod waits before it is bound.
const WAIT: &str = "sample-plugin.example.com/wait-seconds";
//[/]
//[preBind]
/// Where the plugin writes the node of a pod.
const CHOSEN: &str = "sample-plugin.example.com/chosen-node";
//[/]

#[derive(Clone, Default)]
struct SamplePlugin {
    attachments: Arc<Attachments>,
    places: Arc<Mutex<Places>>, //[reserve]
}

impl SamplePlugin {
    /// Take the arguments of every profile. The error goes to the operator.
    //[reserve]
    fn configure(&self, request: &ConfigureRequest) -> Result<(), String> {
        self.places().limits = by_profile(request, places::limit)?;
        Ok(())
    }
    //[/]
    //[!reserve]
    fn configure(&self, _: &ConfigureRequest) -> Result<(), String> {
        Ok(())
    }
    //[/]
    //[preFilter,filter,postFilter,preScore,score,normalizeScore,reserve,permit,preBind,bind]

    /// Do what every call of a cycle begins with: refuse a call of another attachment.
    fn begin<'a>(&self, ctx: &'a Option<CallContext>) -> Result<&'a CallContext, Status> {
        let ctx = self.attachments.context(ctx)?;
        self.places().ended(&ctx.ended); //[reserve]
        Ok(ctx)
    }
    //[/]
    //[reserve]

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap()
    }
    //[/]
}

//[preFilter,filter,preScore,score,permit]
/// Return an annotation of the pod.
fn annotation<'a>(ctx: &'a CallContext, key: &str) -> Option<&'a str> {
    ctx.pod.as_ref()?.summary.as_ref()?.annotations.get(key).map(String::as_str)
}

//[/]
//[preFilter,filter,score]
/// Return the names in an annotation of the pod.
fn listed<'a>(ctx: &'a CallContext, key: &str) -> Vec<&'a str> {
    annotation(ctx, key).unwrap_or_default().split(',').filter(|name| !name.is_empty()).collect()
}

//[/]
//[preEnqueue,filter,postFilter,preScore,reserve,permit,preBind,bind]
fn status(code: Code, reasons: &[&str]) -> PluginStatus {
    PluginStatus { code: code.into(), reasons: reasons.iter().map(|reason| reason.to_string()).collect() }
}

//[/]
//[preFilter,filter,score,normalizeScore]
/// Return the head of an answer without a decision about the pod.
fn head(ctx: &CallContext) -> Option<ReplyContext> {
    Some(ReplyContext { cycle_id: ctx.cycle_id.clone(), ..Default::default() })
}

//[/]
//[postFilter,preScore,reserve,permit,preBind,bind]
/// Return the head of an answer with a decision about the pod.
fn decided(ctx: &CallContext, code: Code, reasons: &[&str]) -> Option<ReplyContext> {
    let status = Some(status(code, reasons));
    Some(ReplyContext { cycle_id: ctx.cycle_id.clone(), status, ..Default::default() })
}

//[/]
//[queue]
#[tonic::async_trait]
impl QueueService for SamplePlugin {
    //[preEnqueue]
    /// Keep pods with the annotation HOLD out of the queue until it is removed.
    async fn pre_enqueue(&self, request: Request<PreEnqueueRequest>) -> Answer<PreEnqueueResponse> {
        let request = agreed(request)?;
        self.attachments.check(&request)?;
        let judge = |pod: QueuedPod| {
            if pod.summary.unwrap_or_default().annotations.contains_key(HOLD) {
                status(Code::UnschedulableAndUnresolvable, &[&format!("annotation {HOLD} holds the pod")])
            } else {
                status(Code::Success, &[])
            }
        };
        Ok(Response::new(PreEnqueueResponse { statuses: request.pods.into_iter().map(judge).collect() }))
    }

    //[/]
    //[queueSort]
    /// Order pods by priority, the highest first, then by the time that they wait.
    async fn sort_keys(&self, request: Request<SortKeysRequest>) -> Answer<SortKeysResponse> {
        let request = agreed(request)?;
        self.attachments.check(&request)?;
        // Keys are compared as bytes: the high byte comes first, and negative numbers sort below the others.
        let key = |pod: QueuedPod| {
            let priority = pod.summary.unwrap_or_default().priority;
            let added = pod.added_at.unwrap_or_default();
            let mut key = i32::MAX.abs_diff(priority).to_be_bytes().to_vec();
            key.extend(added.seconds.max(0).to_be_bytes());
            key.extend(added.nanos.max(0).to_be_bytes());
            key
        };
        Ok(Response::new(SortKeysResponse { keys: request.pods.into_iter().map(key).collect() }))
    }

    //[/]
}

//[/]
//[cycle]
#[tonic::async_trait]
impl SchedulingService for SamplePlugin {
    //[preFilter]
    /// Reduce the nodes to those that the annotation ONLY lists.
    async fn pre_filter(&self, request: Request<PreFilterRequest>) -> Answer<PreFilterResponse> {
        let request = agreed(request)?;
        let ctx = self.begin(&request.ctx)?;
        let names: Vec<String> = listed(ctx, ONLY).into_iter().map(String::from).collect();
        let eligible = (!names.is_empty()).then(|| NodeSet { names, ..Default::default() });
        Ok(Response::new(PreFilterResponse { ctx: head(ctx), eligible, ..Default::default() }))
    }

    //[/]
    //[filter]
    /// Reject the nodes that the annotation AVOID lists.
    async fn filter(&self, request: Request<FilterRequest>) -> Answer<FilterResponse> {
        let FilterRequest { ctx, candidates } = agreed(request)?;
        let ctx = self.begin(&ctx)?;
        let avoided = listed(ctx, AVOID);
        let mut names = candidates.unwrap_or_default().names;
        names.retain(|name| avoided.contains(&name.as_str()));
        let verdicts = (!names.is_empty()).then(|| NodeVerdicts {
            rejected: vec![NodeGroup {
                status: Some(status(Code::UnschedulableAndUnresolvable, &["node(s) that the pod avoids"])),
                nodes: Some(NodeSet { names, ..Default::default() }),
            }],
        });
        Ok(Response::new(FilterResponse { ctx: head(ctx), verdicts, ..Default::default() }))
    }

    //[/]
    //[postFilter]
    /// Say that this plugin cannot make room, so that the host asks the next one.
    async fn post_filter(&self, request: Request<PostFilterRequest>) -> Answer<PostFilterResponse> {
        let request = agreed(request)?;
        let ctx = self.begin(&request.ctx)?;
        let pod = ctx.pod.clone().and_then(|pod| pod.summary?.r#ref).unwrap_or_default();
        eprintln!("no node for {}/{}", pod.namespace, pod.name);
        let ctx = decided(ctx, Code::Unschedulable, &["sample-plugin cannot make room"]);
        Ok(Response::new(PostFilterResponse { ctx, ..Default::default() }))
    }

    //[/]
    //[preScore]
    /// Leave out Score for pods with the annotation UNRANKED.
    async fn pre_score(&self, request: Request<PreScoreRequest>) -> Answer<PreScoreResponse> {
        let request = agreed(request)?;
        let ctx = self.begin(&request.ctx)?;
        let code = if annotation(ctx, UNRANKED).is_some() { Code::Skip } else { Code::Success };
        Ok(Response::new(PreScoreResponse { ctx: decided(ctx, code, &[]), ..Default::default() }))
    }

    //[/]
    //[score]
    /// Give the nodes that the annotation PREFER lists 50 points, and the others none.
    async fn score(&self, request: Request<ScoreRequest>) -> Answer<ScoreResponse> {
        let ScoreRequest { ctx, candidates } = agreed(request)?;
        let ctx = self.begin(&ctx)?;
        let preferred = listed(ctx, PREFER);
        let score = |name: &String| if preferred.contains(&name.as_str()) { 50 } else { 0 };
        let dense = candidates.unwrap_or_default().names.iter().map(score).collect();
        Ok(Response::new(ScoreResponse { ctx: head(ctx), scores: Some(Scores { dense, ..Default::default() }) }))
    }

    //[/]
    //[normalizeScore]
    /// Bring the scores into 0..100: the best node gets 100.
    async fn normalize_score(&self, request: Request<NormalizeScoreRequest>) -> Answer<NormalizeScoreResponse> {
        let NormalizeScoreRequest { ctx, scores, .. } = agreed(request)?;
        let ctx = self.begin(&ctx)?;
        let Scores { mut dense, small, .. } = scores.unwrap_or_default();
        dense.extend(small.into_iter().map(i64::from)); // the host may send either form
        let best = dense.iter().copied().max().unwrap_or_default().max(1);
        dense.iter_mut().for_each(|score| *score = *score * 100 / best);
        let scores = Some(Scores { dense, ..Default::default() });
        Ok(Response::new(NormalizeScoreResponse { ctx: head(ctx), scores }))
    }

    //[/]
    //[reserve]
    /// Take one of the places of the node, podsPerNode of the arguments.
    async fn reserve(&self, request: Request<ReserveRequest>) -> Answer<ReserveResponse> {
        let request = agreed(request)?;
        let ctx = self.begin(&request.ctx)?;
        let ctx = match self.places().take(&ctx.cycle_id, &request.node_name, &ctx.profile) {
            Ok(()) => decided(ctx, Code::Success, &[]),
            Err((code, reason)) => decided(ctx, code, &[reason]),
        };
        Ok(Response::new(ReserveResponse { ctx, ..Default::default() }))
    }

    //[/]
    //[reserve,permit]
    /// Give back what the cycles hold. The host calls it also for cycles that hold nothing.
    async fn unreserve(&self, request: Request<UnreserveRequest>) -> Answer<UnreserveResponse> {
        let request = agreed(request)?;
        self.attachments.check(&request)?;
        let done_cycle_ids: Vec<String> = request.items.into_iter().map(|item| item.cycle_id).collect();
        done_cycle_ids.iter().for_each(|id| self.places().end(id)); //[reserve]
        Ok(Response::new(UnreserveResponse { done_cycle_ids }))
    }

    //[/]
    //[permit]
    /// Let pods with the annotation WAIT wait for so many seconds. DecideWaitingPods of HandleService ends it earlier.
    async fn permit(&self, request: Request<PermitRequest>) -> Answer<PermitResponse> {
        let request = agreed(request)?;
        let ctx = self.begin(&request.ctx)?;
        let seconds: u16 = annotation(ctx, WAIT).and_then(|text| text.parse().ok()).unwrap_or_default();
        let mut answer = PermitResponse { ctx: decided(ctx, Code::Success, &[]), wait_timeout: None };
        if seconds > 0 {
            answer.ctx = decided(ctx, Code::Wait, &[&format!("annotation {WAIT} lets the pod wait")]);
            answer.wait_timeout = Some(prost_types::Duration { seconds: seconds.into(), nanos: 0 });
        }
        Ok(Response::new(answer))
    }

    //[/]
    //[preBind]
    /// Say that PreBind has work to do for each pod.
    async fn pre_bind_pre_flight(&self, request: Request<PreBindPreFlightRequest>) -> Answer<PreBindPreFlightResponse> {
        let request = agreed(request)?;
        let ctx = decided(self.begin(&request.ctx)?, Code::Success, &[]);
        Ok(Response::new(PreBindPreFlightResponse { ctx, ..Default::default() }))
    }

    /// Write the chosen node into the annotation CHOSEN of the pod; the host makes the patch.
    async fn pre_bind(&self, request: Request<PreBindRequest>) -> Answer<PreBindResponse> {
        let request = agreed(request)?;
        let ctx = self.begin(&request.ctx)?;
        let mut answer = PreBindResponse { ctx: decided(ctx, Code::Success, &[]), ..Default::default() };
        if let Some(patched) = request.patched.first() {
            if patched.outcome() != patch_result::Outcome::Applied {
                let reason = format!("the pod was not patched: {}", patched.message);
                answer.ctx = decided(ctx, Code::Error, &[&reason]);
            }
            return Ok(Response::new(answer));
        }
        let patch = serde_json::json!({"metadata": {"annotations": {CHOSEN: request.node_name}}});
        answer.done_when_applied = true;
        answer.patches = vec![ObjectPatch {
            resource: "pods".into(),
            r#ref: ctx.pod.clone().and_then(|pod| pod.summary?.r#ref),
            merge_patch_json: patch.to_string().into_bytes(),
            action: object_patch::Action::Merge.into(),
            ..Default::default()
        }];
        Ok(Response::new(answer))
    }

    //[/]
    //[bind]
    /// Let the host post the Binding.
    async fn bind(&self, request: Request<BindRequest>) -> Answer<BindResponse> {
        let request = agreed(request)?;
        let ctx = decided(self.begin(&request.ctx)?, Code::Success, &[]);
        Ok(Response::new(BindResponse { ctx, host_binds: true }))
    }

    //[/]
    //[postBind]
    /// Log that pods are bound.
    async fn post_bind(&self, request: Request<PostBindRequest>) -> Answer<PostBindResponse> {
        let request = agreed(request)?;
        self.attachments.check(&request)?;
        for item in request.items {
            let pod = item.pod.unwrap_or_default();
            eprintln!("{}/{} is bound to {}", pod.namespace, pod.name, item.node_name);
            self.places().end(&item.cycle_id); //[reserve]
        }
        done()
    }

    //[/]
    /// Drop what the plugin keeps for cycles that are over.
    async fn end_cycles(&self, request: Request<EndCyclesRequest>) -> Answer<EndCyclesResponse> {
        let request = agreed(request)?;
        self.attachments.check(&request)?;
        self.places().ended(&request.ended); //[reserve]
        done()
    }
}

//[/]
//[reserve]
#[tonic::async_trait]
impl StateService for SamplePlugin {
    /// Keep the reservations that the pages list and no other one, after a restart of this process or of the host.
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
        self.places().keep(live);
        done()
    }
}

//[/]
/// Return how the plugin introduces itself to the host.
fn descriptor() -> PluginDescriptor {
    let points = [
        // The host calls the plugin at no other point.
        ExtensionPoint::PreEnqueue,     //[preEnqueue]
        ExtensionPoint::QueueSort,      //[queueSort]
        ExtensionPoint::PreFilter,      //[preFilter]
        ExtensionPoint::Filter,         //[filter]
        ExtensionPoint::PostFilter,     //[postFilter]
        ExtensionPoint::PreScore,       //[preScore]
        ExtensionPoint::Score,          //[score]
        ExtensionPoint::NormalizeScore, //[normalizeScore]
        ExtensionPoint::Reserve,        //[reserve]
        ExtensionPoint::Permit,         //[permit]
        ExtensionPoint::PreBind,        //[preBind]
        ExtensionPoint::Bind,           //[bind]
        ExtensionPoint::PostBind,       //[postBind]
    ];
    PluginDescriptor {
        name: NAME.into(),
        version: "0.1.0".into(),
        points: points.map(i32::from).to_vec(),
        //[score,!normalizeScore]
        // Score answers 0..100, and the score of a node does not depend on the other candidates.
        normalization: ScoreNormalization::None.into(),
        //[/]
        //[normalizeScore]
        // NormalizeScore brings the scores into 0..100.
        normalization: ScoreNormalization::Rpc.into(),
        //[/]
        ..Default::default()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plugin = SamplePlugin::default();
    let (attachments, configured) = (plugin.attachments.clone(), plugin.clone());
    let services = |router: tonic::transport::server::Router| {
        let router = router.add_service(QueueServiceServer::new(plugin.clone())); //[queue]
        let router = router.add_service(SchedulingServiceServer::new(plugin.clone())); //[cycle]
        let router = router.add_service(StateServiceServer::new(plugin.clone())); //[reserve]
        router
    };
    serve::plugin(descriptor(), attachments, move |request| configured.configure(request), services).await
}
