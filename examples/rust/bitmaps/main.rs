//! FreeCpu keeps pods off nodes without enough free CPU, and prefers the nodes with the most. It is in SNAPSHOT mode: it
//! keeps a table of the nodes (`table.rs`), and names them by bitmaps.

mod table;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serve::contract::scheduling_service_server::{SchedulingService, SchedulingServiceServer};
use serve::contract::state_service_server::{StateService, StateServiceServer};
use serve::contract::*;
use serve::{Answer, Attachments, agree, agreed, done};
use table::{Chunks, Node, Table};
use tonic::{Request, Response, Status, Streaming};

const KEPT_CYCLES: usize = 4096; // reports of the end of a cycle can get lost

#[derive(Default)]
struct State {
    table: Table,
    requests: VecDeque<(String, i64)>, // of the pod of each cycle, in thousandths of a core; the newest first
}

#[derive(Clone, Default)]
struct FreeCpu {
    attachments: Arc<Attachments>,
    state: Arc<Mutex<State>>,
}

impl State {
    fn end(&mut self, ended: &[CycleEnd]) {
        self.requests.retain(|(cycle, _)| !ended.iter().any(|end| end.cycle_id == *cycle));
    }

    /// Take what the context brings. Returns what the pod requests, or what the plugin lacks.
    fn take(&mut self, ctx: &CallContext) -> Result<i64, Missing> {
        self.end(&ctx.ended);
        let taken = ctx.delta.as_ref().is_none_or(|delta| self.table.take(delta));
        if !taken || self.table.version != ctx.version {
            return Err(Missing::State);
        }
        let pod = ctx.pod.as_ref().filter(|pod| pod.complete);
        if let Some(summary) = pod.and_then(|pod| pod.summary.as_ref()) {
            let cpu = summary.requests.get("cpu").copied().unwrap_or_default();
            self.requests.push_front((ctx.cycle_id.clone(), cpu));
            self.requests.truncate(KEPT_CYCLES);
        }
        let known = self.requests.iter().find(|(cycle, _)| *cycle == ctx.cycle_id);
        known.map(|(_, cpu)| *cpu).ok_or(Missing::Pod)
    }

    /// Return the context of the answer, and what the pod requests if the call can be executed.
    fn begin(&mut self, ctx: &CallContext) -> (Option<ReplyContext>, Option<i64>) {
        let taken = self.take(ctx);
        let missing = taken.err().map(i32::from).into_iter().collect();
        let have = self.table.version.filter(|_| taken.is_err());
        (Some(ReplyContext { cycle_id: ctx.cycle_id.clone(), missing, have, ..Default::default() }), taken.ok())
    }
}

fn consent() -> PluginStatus {
    PluginStatus { code: plugin_status::Code::Success.into(), reasons: vec![] }
}

fn rejection() -> PluginStatus {
    PluginStatus { code: plugin_status::Code::Unschedulable.into(), reasons: vec!["not enough free cpu".into()] }
}

#[tonic::async_trait]
impl SchedulingService for FreeCpu {
    async fn filter(&self, request: Request<FilterRequest>) -> Answer<FilterResponse> {
        let FilterRequest { ctx, candidates } = agreed(request)?;
        let ctx = self.attachments.context(&ctx)?;
        let mut state = self.state.lock().unwrap();
        let (reply, cpu) = state.begin(ctx);
        let mut answer = FilterResponse { ctx: reply, ..Default::default() };
        let Some(cpu) = cpu else { return Ok(Response::new(answer)) };
        let candidates = candidates.unwrap_or_default();
        let rejected = state.table.chosen(&candidates).filter(|(_, node)| node.free() < cpu);
        let bitmap = table::bitmap(rejected.map(|(index, _)| index));
        if !bitmap.is_empty() {
            let nodes = Some(NodeSet { bitmap, ..Default::default() });
            answer.verdicts = Some(NodeVerdicts { rejected: vec![NodeGroup { status: Some(rejection()), nodes }] });
        }
        Ok(Response::new(answer))
    }

    async fn simulate_filter(&self, request: Request<SimulateFilterRequest>) -> Answer<SimulateFilterResponse> {
        let SimulateFilterRequest { ctx, scenarios } = agreed(request)?;
        let ctx = self.attachments.context(&ctx)?;
        let mut state = self.state.lock().unwrap();
        let (reply, cpu) = state.begin(ctx);
        let mut answer = SimulateFilterResponse { ctx: reply, statuses: vec![] };
        let Some(cpu) = cpu else { return Ok(Response::new(answer)) };
        for scenario in scenarios {
            let assumed = scenario.node.unwrap_or_default();
            let node = assumed.node_index.and_then(|index| state.table.node(index as usize));
            let mut node = node.ok_or(Status::invalid_argument("a scenario names no node"))?;
            node.set_usage(&assumed.usage.unwrap_or_default());
            answer.statuses.push(if node.free() < cpu { rejection() } else { consent() });
        }
        Ok(Response::new(answer))
    }

    async fn score(&self, request: Request<ScoreRequest>) -> Answer<ScoreResponse> {
        let ScoreRequest { ctx, candidates } = agreed(request)?;
        let ctx = self.attachments.context(&ctx)?;
        let mut state = self.state.lock().unwrap();
        let (reply, cpu) = state.begin(ctx);
        let mut answer = ScoreResponse { ctx: reply, scores: None };
        let Some(cpu) = cpu else { return Ok(Response::new(answer)) };
        // RunScores asks about nodes that are not feasible too, and HOST_MAX takes no score below 0.
        let free = |(_, node): (usize, &Node)| (node.free() - cpu).max(0);
        let dense = state.table.chosen(&candidates.unwrap_or_default()).map(free).collect();
        answer.scores = Some(Scores { dense, ..Default::default() });
        Ok(Response::new(answer))
    }

    async fn end_cycles(&self, request: Request<EndCyclesRequest>) -> Answer<EndCyclesResponse> {
        let request = agreed(request)?;
        self.attachments.check(&request)?;
        self.state.lock().unwrap().end(&request.ended);
        done()
    }
}

#[tonic::async_trait]
impl StateService for FreeCpu {
    async fn sync_state(&self, request: Request<Streaming<SyncStateRequest>>) -> Answer<SyncStateResponse> {
        let (metadata, _, mut stream) = request.into_parts();
        let mut chunks = Chunks::default();
        while let Some(request) = stream.message().await? {
            agree(&metadata, &request)?;
            self.attachments.check(&request)?;
            let (found, expected) = (request.sequence, chunks.count);
            if found != expected {
                return Err(Status::invalid_argument(format!("chunk {found} came in place of {expected}")));
            }
            let is_last = request.last;
            chunks.add(request);
            if is_last {
                let table = &mut self.state.lock().unwrap().table;
                let need_full = !table.sync(chunks);
                return Ok(Response::new(SyncStateResponse { have: table.version, need_full }));
            }
        }
        Err(Status::invalid_argument("the stream ended before its last chunk"))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let me = PluginDescriptor {
        name: "FreeCpu".into(),
        points: vec![ExtensionPoint::Filter.into(), ExtensionPoint::Score.into()],
        node_mode: NodeMode::Snapshot.into(),
        needs: vec![DeclaredNeed { kind: declared_need::Kind::NodeSummary.into(), ..Default::default() }],
        pod_sensitivity: PodSensitivity::Node.into(),
        normalization: ScoreNormalization::HostMax.into(),
        ..Default::default()
    };
    let plugin = FreeCpu::default();
    let attachments = plugin.attachments.clone();
    let services = |router: tonic::transport::server::Router| {
        router.add_service(SchedulingServiceServer::new(plugin.clone())).add_service(StateServiceServer::new(plugin))
    };
    serve::plugin(me, attachments, |_| Ok(()), services).await
}
