//! Servers with the interface of S3. Neither is fit for an archive: `rclone` ignores the condition
//! of a create-only put, and `s3s-fs` checks it before it writes, unless it serves one request at a
//! time.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tests::certificates::Certificates;
use tests::lab::Lab;
use tests::peers;
use tests::process::Process;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// The keys of all servers.
pub(crate) const KEYS: (&str, &str) = ("a-key", "a-secret");

/// The bucket that all servers have.
pub(crate) const BUCKET: &str = "traces";

/// `s3s-fs` in this process, on threads of its own.
pub(crate) struct S3sServer {
    address: SocketAddr,
    is_away: Arc<AtomicBool>,
    _runtime: Runtime,
}

impl S3sServer {
    pub(crate) fn start(lab: &Lab) -> Self {
        Self::start_with(lab, Semaphore::MAX_PERMITS)
    }

    /// Starts a server that serves one request at a time: its create-only puts are atomic.
    pub(crate) fn start_atomic(lab: &Lab) -> Self {
        Self::start_with(lab, 1)
    }

    fn start_with(lab: &Lab, max_requests: usize) -> Self {
        let root = bucket_parent(lab, "s3s");
        let mut service = S3ServiceBuilder::new(FileSystem::new(root).unwrap());
        service.set_auth(SimpleAuth::from_single(KEYS.0, KEYS.1));
        let service = service.build();
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let is_away = Arc::<AtomicBool>::default();
        let closes = Arc::clone(&is_away);
        let permits = Arc::new(Semaphore::new(max_requests));
        runtime.spawn(async move {
            while let Ok((peer, _)) = listener.accept().await {
                let (service, permits) = (service.clone(), Arc::clone(&permits));
                let closes = Arc::clone(&closes);
                let serve = service_fn(move |request: Request<Incoming>| {
                    let (service, permits) = (service.clone(), Arc::clone(&permits));
                    let closes = Arc::clone(&closes);
                    async move {
                        let _permit = permits.acquire().await.unwrap();
                        if closes.load(Ordering::Relaxed) {
                            // The connection ends without an answer.
                            return Err(Box::<dyn Error + Send + Sync>::from("away"));
                        }
                        Service::call(&service, request).await.map_err(Into::into)
                    }
                });
                let served = http1::Builder::new().serve_connection(TokioIo::new(peer), serve);
                tokio::spawn(served);
            }
        });
        Self {
            address,
            is_away,
            _runtime: runtime,
        }
    }

    /// Sets whether the server closes connections without an answer.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// `rclone serve s3`.
pub(crate) struct RcloneServer {
    url: String,
    _process: Process,
}

impl RcloneServer {
    /// Starts the server, with TLS if there is a certificate.
    pub(crate) fn start(lab: &Lab, certificates: Option<&Certificates>) -> Self {
        let root = bucket_parent(lab, "rclone");
        let mut command: Command = lab.command(peers::RCLONE.path());
        command.args(["serve", "s3", "--addr", "127.0.0.1:0", "--auth-key"]);
        command.arg(format!("{},{}", KEYS.0, KEYS.1));
        if let Some(certificates) = certificates {
            let file = |name: &str| certificates.file(name);
            command.arg("--cert").arg(file("server.pem"));
            command.arg("--key").arg(file("server.key"));
        }
        let mut process = Process::start(command.arg(&root));
        let url = process.wait_for_stderr("address of rclone", |line| {
            let (_, rest) = line.split_once("server on [")?;
            Some(rest.split_once("/]")?.0.to_owned())
        });
        Self {
            url,
            _process: process,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// Creates a directory with the bucket.
fn bucket_parent(lab: &Lab, name: &str) -> PathBuf {
    let root = lab.directory(name);
    std::fs::create_dir(root.join(BUCKET)).unwrap();
    root
}
