//! SamplePlugin, asked in this process: no server, no cluster.

use super::*;

//[preFilter,filter,postFilter,preScore,score,normalizeScore,reserve,permit,preBind,bind]
/// Return the context of a call about a pod with one annotation.
fn about(cycle: &str, annotation: &str, value: &str) -> Option<CallContext> {
    let reference = ObjectRef { namespace: "default".into(), name: "web".into(), ..Default::default() };
    let annotations = [(annotation.into(), value.into())].into();
    let summary = Some(PodSummary { r#ref: Some(reference), annotations, ..Default::default() });
    Some(CallContext {
        cycle_id: cycle.into(),
        plugin: NAME.into(),
        profile: "default-scheduler".into(),
        attachment_id: "here".into(),
        pod: Some(CyclePod { summary, complete: true, ..Default::default() }),
        ..Default::default()
    })
}

//[/]
//[filter,preScore,score]
fn nodes() -> Option<NodeSet> {
    Some(NodeSet { names: ["n1", "n2", "n3"].map(String::from).to_vec(), ..Default::default() })
}

//[/]
//[postFilter,preScore,reserve,permit,preBind,bind]
fn code(ctx: Option<ReplyContext>) -> Code {
    ctx.and_then(|ctx| ctx.status).unwrap_or_default().code()
}

//[/]
/// Return a plugin that a host has attached.
fn attached() -> SamplePlugin {
    SamplePlugin {
        attachments: Arc::new(Attachments::attached("here", NAME, "default-scheduler")),
        ..Default::default()
    }
}

#[test]
fn plugin_is_named_as_in_the_configuration() {
    assert_eq!(descriptor().name, "SamplePlugin");
}
//[cycle]

#[tokio::test]
async fn call_of_another_attachment_is_refused() {
    let stranger = EndCyclesRequest { attachment_id: "there".into(), ..Default::default() };
    assert_eq!(attached().end_cycles(Request::new(stranger)).await.unwrap_err().code(), tonic::Code::PermissionDenied);
}
//[/]
//[preEnqueue]

#[tokio::test]
async fn pod_that_is_held_does_not_enter_the_queue() {
    let pod = |annotations| QueuedPod {
        summary: Some(PodSummary { annotations, ..Default::default() }),
        ..Default::default()
    };
    let pods = vec![pod([].into()), pod([(HOLD.into(), "true".into())].into())];
    let request = PreEnqueueRequest { pods, plugin: NAME.into(), attachment_id: "here".into(), ..Default::default() };
    let answer = attached().pre_enqueue(Request::new(request)).await.unwrap().into_inner();
    let codes: Vec<Code> = answer.statuses.iter().map(PluginStatus::code).collect();
    assert_eq!(codes, [Code::Success, Code::UnschedulableAndUnresolvable]);
}
//[/]
//[queueSort]

#[tokio::test]
async fn pod_of_higher_priority_comes_first() {
    let pod = |(priority, seconds)| QueuedPod {
        summary: Some(PodSummary { priority, ..Default::default() }),
        added_at: Some(prost_types::Timestamp { seconds, nanos: 0 }),
        ..Default::default()
    };
    // In the order in which they are tried.
    let pods = [(2000000000, 9), (1, 1), (1, 2), (0, 0), (-5, 0)].map(pod).to_vec();
    let request = SortKeysRequest { pods, plugin: NAME.into(), attachment_id: "here".into() };
    let keys = attached().sort_keys(Request::new(request)).await.unwrap().into_inner().keys;
    assert!(keys.is_sorted_by(|one, other| one < other));
}
//[/]
//[preFilter]

#[tokio::test]
async fn annotation_reduces_the_nodes() {
    let request = PreFilterRequest { ctx: about("1", ONLY, "n1,n2"), ..Default::default() };
    let answer = attached().pre_filter(Request::new(request)).await.unwrap().into_inner();
    assert_eq!(answer.eligible.unwrap().names, ["n1", "n2"]);
    let request = PreFilterRequest { ctx: about("2", "other", ""), ..Default::default() };
    assert_eq!(attached().pre_filter(Request::new(request)).await.unwrap().into_inner().eligible, None);
}
//[/]
//[filter]

#[tokio::test]
async fn node_that_the_pod_avoids_is_rejected() {
    let request = FilterRequest { ctx: about("1", AVOID, "n2"), candidates: nodes() };
    let answer = attached().filter(Request::new(request)).await.unwrap().into_inner();
    assert_eq!(answer.verdicts.unwrap().rejected[0].nodes.as_ref().unwrap().names, ["n2"]);
    let request = FilterRequest { ctx: about("2", "other", ""), candidates: nodes() };
    assert_eq!(attached().filter(Request::new(request)).await.unwrap().into_inner().verdicts, None);
}
//[/]
//[postFilter]

#[tokio::test]
async fn plugin_leaves_the_search_for_victims_to_others() {
    let request = PostFilterRequest { ctx: about("1", "other", ""), ..Default::default() };
    let answer = attached().post_filter(Request::new(request)).await.unwrap().into_inner();
    assert_eq!(code(answer.ctx), Code::Unschedulable);
}
//[/]
//[preScore]

#[tokio::test]
async fn pod_that_is_unranked_is_not_scored() {
    for (annotation, expected) in [(UNRANKED, Code::Skip), ("other", Code::Success)] {
        let request = PreScoreRequest { ctx: about("1", annotation, ""), candidates: nodes() };
        let answer = attached().pre_score(Request::new(request)).await.unwrap().into_inner();
        assert_eq!(code(answer.ctx), expected);
    }
}
//[/]
//[score]

#[tokio::test]
async fn node_that_the_pod_prefers_scores_more() {
    let request = ScoreRequest { ctx: about("1", PREFER, "n3"), candidates: nodes() };
    let answer = attached().score(Request::new(request)).await.unwrap().into_inner();
    assert_eq!(answer.scores.unwrap().dense, [0, 0, 50]);
}
//[/]
//[normalizeScore]

#[tokio::test]
async fn best_node_gets_100() {
    let dense = Scores { dense: vec![0, 25, 50], ..Default::default() };
    let small = Scores { small: vec![0, 0], ..Default::default() };
    for (scores, expected) in [(dense, vec![0, 50, 100]), (small, vec![0, 0])] {
        let ctx = about("1", "other", "");
        let request = NormalizeScoreRequest { ctx, scores: Some(scores), ..Default::default() };
        let answer = attached().normalize_score(Request::new(request)).await.unwrap().into_inner();
        assert_eq!(answer.scores.unwrap().dense, expected);
    }
}
//[/]
//[reserve]

/// Return a plugin with so many places on each node, or its error.
fn configured(pods_per_node: f64) -> Result<SamplePlugin, String> {
    let value = prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(pods_per_node)) };
    let args = Some(prost_types::Struct { fields: [("podsPerNode".to_string(), value)].into() });
    let profile = PluginArgs { profile: "default-scheduler".into(), args, ..Default::default() };
    let plugin = attached();
    plugin.configure(&ConfigureRequest { plugins: vec![profile], ..Default::default() })?;
    Ok(plugin)
}

async fn reserved(plugin: &SamplePlugin, cycle: &str) -> Code {
    let request = ReserveRequest { ctx: about(cycle, "other", ""), node_name: "n1".into(), ..Default::default() };
    code(plugin.reserve(Request::new(request)).await.unwrap().into_inner().ctx)
}

#[tokio::test]
async fn place_is_given_back() {
    let plugin = configured(1.0).unwrap();
    assert_eq!(reserved(&plugin, "1").await, Code::Success);
    assert_eq!(reserved(&plugin, "1").await, Code::Success); // a duplicate
    assert_eq!(reserved(&plugin, "2").await, Code::Unschedulable);
    let items = vec![UnreserveItem { cycle_id: "1".into(), ..Default::default() }];
    let request = UnreserveRequest { items, plugin: NAME.into(), attachment_id: "here".into() };
    assert_eq!(plugin.unreserve(Request::new(request)).await.unwrap().into_inner().done_cycle_ids, ["1"]);
    assert_eq!(reserved(&plugin, "3").await, Code::Success);
    assert_eq!(reserved(&plugin, "1").await, Code::Error); // its cycle is over
}

#[tokio::test]
async fn place_of_a_bound_pod_is_free_and_so_is_one_that_is_not_live() {
    let plugin = configured(1.0).unwrap();
    plugin.places().keep(vec![LiveReservation { cycle_id: "1".into(), node_name: "n1".into(), ..Default::default() }]);
    assert_eq!(reserved(&plugin, "2").await, Code::Unschedulable);
    let ended = vec![CycleEnd { cycle_id: "1".into(), outcome: cycle_end::Outcome::Bound.into() }];
    let request = EndCyclesRequest { ended, plugin: NAME.into(), attachment_id: "here".into() };
    plugin.end_cycles(Request::new(request)).await.unwrap();
    assert_eq!(reserved(&plugin, "3").await, Code::Success);
    plugin.places().keep(vec![]);
    assert_eq!(reserved(&plugin, "4").await, Code::Success);
}

#[test]
fn argument_that_makes_no_sense_is_refused() {
    for wrong in [0.0, -1.0, 1.5] {
        assert!(configured(wrong).err().unwrap().contains("podsPerNode"));
    }
}
//[/]
//[permit]

#[tokio::test]
async fn pod_with_the_annotation_waits() {
    let request = PermitRequest { ctx: about("1", WAIT, "30"), ..Default::default() };
    let answer = attached().permit(Request::new(request)).await.unwrap().into_inner();
    assert_eq!((code(answer.ctx), answer.wait_timeout.unwrap().seconds), (Code::Wait, 30));
    let request = PermitRequest { ctx: about("2", WAIT, "long"), ..Default::default() };
    let answer = attached().permit(Request::new(request)).await.unwrap().into_inner();
    assert_eq!(code(answer.ctx), Code::Success);
}
//[/]
//[preBind]

#[tokio::test]
async fn chosen_node_is_written_to_the_pod() {
    let mut request = PreBindRequest { ctx: about("1", "other", ""), node_name: "n1".into(), ..Default::default() };
    let answer = attached().pre_bind(Request::new(request.clone())).await.unwrap().into_inner();
    let patch: serde_json::Value = serde_json::from_slice(&answer.patches[0].merge_patch_json).unwrap();
    assert_eq!(patch["metadata"]["annotations"][CHOSEN], "n1");
    assert!(answer.done_when_applied);
    let outcome = patch_result::Outcome::Conflict.into();
    request.patched = vec![PatchResult { outcome, ..Default::default() }];
    let answer = attached().pre_bind(Request::new(request)).await.unwrap().into_inner();
    assert_eq!(code(answer.ctx), Code::Error);
}
//[/]
//[bind]

#[tokio::test]
async fn host_posts_the_binding() {
    let request = BindRequest { ctx: about("1", "other", ""), node_name: "n1".into() };
    let answer = attached().bind(Request::new(request)).await.unwrap().into_inner();
    assert!(answer.host_binds);
    assert_eq!(code(answer.ctx), Code::Success);
}
//[/]
//[postBind]

#[tokio::test]
async fn binding_is_acknowledged() {
    let items = vec![PostBindItem { cycle_id: "1".into(), node_name: "n1".into(), ..Default::default() }];
    let request = PostBindRequest { items, plugin: NAME.into(), attachment_id: "here".into() };
    assert!(attached().post_bind(Request::new(request)).await.is_ok());
}
//[/]
