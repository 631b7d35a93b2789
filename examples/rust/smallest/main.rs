//! Maintenance keeps pods off the nodes that its argument `nodes` names. It is in NAMES mode: it gets names of nodes, and
//! no state.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, RwLock};

use prost_types::value::Kind;
use serve::contract::scheduling_service_server::{SchedulingService, SchedulingServiceServer};
use serve::contract::*;
use serve::{Answer, Attachments, agreed, by_profile, done};
use tonic::{Request, Response};

type Names = HashSet<String>;

struct Maintenance {
    attachments: Arc<Attachments>,
    closed: Arc<RwLock<HashMap<String, Names>>>, // by profile
}

fn closed_nodes(args: &prost_types::Struct) -> Result<Names, String> {
    let Some(nodes) = args.fields.get("nodes") else { return Ok(Names::new()) };
    let Some(Kind::ListValue(list)) = &nodes.kind else { return Err("nodes: must be a list of names of nodes".into()) };
    let names = list.values.iter().map(|value| match &value.kind {
        Some(Kind::StringValue(name)) => Ok(name.clone()),
        _ => Err("nodes: must be a list of names of nodes".into()),
    });
    names.collect()
}

#[tonic::async_trait]
impl SchedulingService for Maintenance {
    async fn filter(&self, request: Request<FilterRequest>) -> Answer<FilterResponse> {
        let FilterRequest { ctx, candidates } = agreed(request)?;
        let ctx = self.attachments.context(&ctx)?;
        let closed = self.closed.read().unwrap();
        let is_shut = |name: &String| closed.get(&ctx.profile).is_some_and(|names| names.contains(name));
        let shut: Vec<String> = candidates.unwrap_or_default().names.into_iter().filter(is_shut).collect();
        let group = || NodeGroup {
            status: Some(PluginStatus {
                code: plugin_status::Code::Unschedulable.into(),
                reasons: vec!["under maintenance".into()],
            }),
            nodes: Some(NodeSet { names: shut.clone(), ..Default::default() }),
        };
        Ok(Response::new(FilterResponse {
            ctx: Some(ReplyContext { cycle_id: ctx.cycle_id.clone(), ..Default::default() }),
            verdicts: (!shut.is_empty()).then(|| NodeVerdicts { rejected: vec![group()] }),
            ..Default::default()
        }))
    }

    async fn end_cycles(&self, request: Request<EndCyclesRequest>) -> Answer<EndCyclesResponse> {
        self.attachments.check(&agreed(request)?)?;
        done() // the plugin keeps nothing of a cycle
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let me = PluginDescriptor {
        name: "Maintenance".into(),
        points: vec![ExtensionPoint::Filter.into()],
        depends_on: DependsOn::Node.into(),
        sign_fields: Some(PodFields::default()), // no field of the pod counts
        host_keeps_answers: true,
        ..Default::default()
    };
    let attachments = Arc::new(Attachments::default());
    let closed = Arc::<RwLock<HashMap<String, Names>>>::default();
    let plugin = Maintenance { attachments: attachments.clone(), closed: closed.clone() };
    let configure = move |request: &ConfigureRequest| {
        *closed.write().unwrap() = by_profile(request, closed_nodes)?;
        Ok(())
    };
    serve::plugin(me, attachments, configure, |router| router.add_service(SchedulingServiceServer::new(plugin))).await
}
