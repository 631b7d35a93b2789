//! What every plugin needs beside its decisions: the code of the contract, the introduction to the host, the server.

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::{env, error::Error, fmt, fs, path::Path, time::SystemTime};

use prost_types::{Struct, Timestamp};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::{Server, server::Router};
use tonic::{Request, Response, Status, metadata::MetadataMap};

/// The code that tonic and prost make of `proto/berth/plugin/v1`.
#[allow(clippy::all)]
pub mod contract {
    tonic::include_proto!("berth.plugin.v1");
}
impl fmt::Debug for HandshakeRequest {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.debug_struct("HandshakeRequest").field("attachment_id", &self.attachment_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for HandleEndpoint {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.debug_struct("HandleEndpoint").field("target", &self.target).finish_non_exhaustive()
    }
}

use contract::identity_service_server::{IdentityService, IdentityServiceServer};
use contract::*;

#[cfg(test)]
mod tests;

/// What a call answers.
pub type Answer<T> = Result<Response<T>, Status>;

/// Answer a message that says nothing.
pub fn done<T: Default>() -> Answer<T> {
    Ok(Response::new(T::default()))
}

/// A request, and the attachment and the plugin that it names. A request without a plugin names None.
pub trait Named {
    fn named(&self) -> (&str, Option<&str>);
}

macro_rules! named {
    ($($kind:ident)* => |$request:ident| $names:expr) => {
        $(impl Named for $kind {
            fn named(&self) -> (&str, Option<&str>) {
                let $request = self;
                $names
            }
        })*
    };
}

named!(HandshakeRequest ConfigureRequest ProbeRequest DrainRequest SyncStateRequest
    => |request| (request.attachment_id.as_str(), None));
named!(PreEnqueueRequest SortKeysRequest QueueingHintsRequest ReconcileRequest UnreserveRequest PostBindRequest
    EndCyclesRequest
    => |request| (request.attachment_id.as_str(), Some(request.plugin.as_str())));
named!(PreFilterRequest FilterRequest SimulateFilterRequest PostFilterRequest PreScoreRequest ScoreRequest
NormalizeScoreRequest ReserveRequest PermitRequest PreBindPreFlightRequest PreBindRequest BindRequest
=> |request| match &request.ctx {
    Some(ctx) => (ctx.attachment_id.as_str(), Some(ctx.plugin.as_str())),
    None => ("", None),
});

/// Return the message of a request whose metadata agrees with it.
pub fn agreed<T: Named>(request: Request<T>) -> Result<T, Status> {
    agree(request.metadata(), request.get_ref())?;
    Ok(request.into_inner())
}

/// Refuse a message whose metadata names another attachment or plugin: an interceptor may have read the metadata.
pub fn agree(metadata: &MetadataMap, message: &impl Named) -> Result<(), Status> {
    let (attachment_id, plugin) = message.named();
    for (key, name) in [("berth-attachment-id", Some(attachment_id)), ("berth-plugin", plugin)] {
        let Some(name) = name else { continue };
        if metadata.get_all(key).iter().any(|beside| beside.as_encoded_bytes() != name.as_bytes()) {
            return Err(Status::invalid_argument(format!("the metadata {key} differs from the request")));
        }
    }
    Ok(())
}

/// The attachments that hosts named: the plugin serves the one of the last Configure that it accepted.
#[derive(Default)]
pub struct Attachments(Mutex<Ids>);

#[derive(Default)]
struct Ids {
    named: VecDeque<String>,
    attached: String,
    served: Vec<(String, String)>, // the plugins of that attachment, each with a profile
}

impl Attachments {
    /// Return attachments of which `id` is the present one, for tests that call a plugin without a host.
    pub fn attached(id: &str, plugin: &str, profile: &str) -> Self {
        let served = vec![(plugin.into(), profile.into())];
        Self(Mutex::new(Ids { attached: id.into(), served, ..Default::default() }))
    }

    /// Refuse every attachment but the present one, and every plugin that its Configure did not name.
    pub fn check(&self, message: &impl Named) -> Result<(), Status> {
        let (id, plugin) = message.named();
        self.admit(id, plugin, None)
    }

    /// Return the context of a call of a cycle; refuse a call of another attachment, plugin or profile.
    pub fn context<'a>(&self, ctx: &'a Option<CallContext>) -> Result<&'a CallContext, Status> {
        let ctx = ctx.as_ref().ok_or(Status::invalid_argument("the request has no ctx"))?;
        self.admit(&ctx.attachment_id, Some(&ctx.plugin), Some(&ctx.profile))?;
        Ok(ctx)
    }

    /// Refuse what the last Configure that was accepted did not name. `plugin`, `profile`: None: any.
    fn admit(&self, id: &str, plugin: Option<&str>, profile: Option<&str>) -> Result<(), Status> {
        let ids = self.0.lock().unwrap();
        if id.is_empty() || id != ids.attached {
            return Err(Status::permission_denied(
                "the attachment_id is not that of the last Configure that was accepted",
            ));
        }
        let is_meant = |one: &(String, String)| {
            plugin.is_none_or(|name| name == one.0) && profile.is_none_or(|name| name == one.1)
        };
        if !ids.served.iter().any(is_meant) {
            return Err(Status::invalid_argument("the last Configure named no such plugin or profile"));
        }
        Ok(())
    }
}

/// Read the arguments of each profile. A plugin answers a call by those of the call's profile.
pub fn by_profile<T>(
    request: &ConfigureRequest,
    read: impl Fn(&Struct) -> Result<T, String>,
) -> Result<HashMap<String, T>, String> {
    let args = |plugin: &PluginArgs| read(plugin.args.as_ref().unwrap_or(&Struct::default()));
    request.plugins.iter().map(|plugin| Ok((plugin.profile.clone(), args(plugin)?))).collect()
}

/// Takes a request that the host accepted; an error goes to the operator.
type Configure = Box<dyn Fn(&ConfigureRequest) -> Result<(), String> + Send + Sync>;

struct Identity {
    hello: HandshakeResponse,
    configure: Configure,
    attachments: Arc<Attachments>,
}

#[tonic::async_trait]
impl IdentityService for Identity {
    async fn handshake(&self, request: Request<HandshakeRequest>) -> Answer<HandshakeResponse> {
        let request = agreed(request)?;
        if env::var("BERTH_PLUGIN_CREDENTIAL")
            .is_ok_and(|secret| !same(secret.as_bytes(), request.credential.as_bytes()))
        {
            return Err(Status::unauthenticated("the credential is not the one in BERTH_PLUGIN_CREDENTIAL"));
        }
        let mut ids = self.attachments.0.lock().unwrap();
        ids.named.push_back(request.attachment_id);
        if ids.named.len() > 64 {
            ids.named.pop_front();
        }
        Ok(Response::new(self.hello.clone()))
    }

    async fn configure(&self, request: Request<ConfigureRequest>) -> Answer<ConfigureResponse> {
        let request = agreed(request)?;
        let mut ids = self.attachments.0.lock().unwrap();
        if !ids.named.contains(&request.attachment_id) {
            return Err(Status::permission_denied("no Handshake named this attachment_id"));
        }
        if !request.accepted {
            if ids.attached == request.attachment_id {
                ids.attached.clear();
            }
        } else if let Err(error) = (self.configure)(&request) {
            return Ok(Response::new(ConfigureResponse { error, ..Default::default() }));
        } else {
            ids.attached = request.attachment_id;
            ids.served = request.plugins.into_iter().map(|plugin| (plugin.name, plugin.profile)).collect();
        }
        done()
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Answer<ProbeResponse> {
        self.attachments.check(&agreed(request)?)?;
        Ok(Response::new(ProbeResponse {
            ready: true,
            instance_id: self.hello.instance_id.clone(),
            ..Default::default()
        }))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Answer<DrainResponse> {
        self.attachments.check(&agreed(request)?)?;
        done()
    }
}

/// Compare in a time that does not depend on where the two differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |found, (a, b)| found | (a ^ b)) == 0
}

/// Serve one plugin until the host ends, or SIGTERM. `services` adds the services of the plugin's points.
pub async fn plugin(
    me: PluginDescriptor,
    attachments: Arc<Attachments>,
    configure: impl Fn(&ConfigureRequest) -> Result<(), String> + Send + Sync + 'static,
    services: impl FnOnce(Router) -> Router,
) -> Result<(), Box<dyn Error>> {
    let mut random = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let hello = HandshakeResponse {
        supported: vec![ContractVersion { major: 1, minor: 0 }],
        plugins: vec![me],
        instance_id: random.map(|byte| format!("{byte:02x}")).concat(),
        started_at: Some(Timestamp::from(SystemTime::now())),
        // 0: 4 MiB, which is the limit of tonic too. Who sets more here sets max_decoding_message_size of each service.
        max_message_bytes: 0,
        features: vec![],
    };
    let instance_id = hello.instance_id.clone();
    let identity = Identity { hello, configure: Box::new(configure), attachments };
    let router = services(Server::builder().add_service(IdentityServiceServer::new(identity)));

    let endpoint = env::var("BERTH_PLUGIN_ENDPOINT").unwrap_or_default();
    let failed =
        |error| format!("BERTH_PLUGIN_ENDPOINT {endpoint:?}: {error}; set it to unix:///absolute/path or host:port");
    if let Some(path) = endpoint.strip_prefix("unix://") {
        if Path::new(path).exists() && std::os::unix::net::UnixStream::connect(path).is_err() {
            fs::remove_file(path)?; // a dead process left it
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        introduce(&endpoint, &instance_id);
        router.serve_with_incoming_shutdown(UnixListenerStream::new(listener), ended()).await?;
    } else {
        let listener = TcpListener::bind(&endpoint).await.map_err(failed)?;
        introduce(&listener.local_addr()?.to_string(), &instance_id);
        router.serve_with_incoming_shutdown(TcpListenerStream::new(listener), ended()).await?;
    }
    Ok(())
}

/// Print the line that a host reads of its child.
fn introduce(address: &str, instance_id: &str) {
    let cookie = env::var("BERTH_PLUGIN_COOKIE").unwrap_or_default();
    println!(
        "{}",
        serde_json::json!({"protocol": "berth/1", "address": address, "instance_id": instance_id, "cookie": cookie})
    );
}

/// Wait for SIGTERM, or of a child for the end of its host, which holds the other end of standard input.
async fn ended() {
    let mut terminated = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
    if env::var("BERTH_PLUGIN_COOKIE").is_err() {
        terminated.recv().await;
        return;
    }
    let (gone, host) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = gone.send(());
    });
    tokio::select! { _ = terminated.recv() => (), _ = host => () }
}
