//! The section `[codetracer]` of the configuration file, and the options that override it.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::{RecordingSettings, RecordingSocket, serve};
use crate::frontend::{Frontend, FrontendContext, FrontendTask};
use crate::limits::DEFAULT_SOURCE_BYTES;

/// The options of `consumer serve` for CodeTracer recordings.
#[derive(Debug, Args)]
pub struct CodetracerOptions {
    /// Accept CodeTracer recordings on the Unix socket SOCKET: on each connection the metadata on
    /// the first line, then an event on each line
    #[arg(long, value_name = "SOCKET")]
    codetracer: Option<PathBuf>,
    /// Copy the source files that recordings name, if they are below DIR
    #[arg(long, value_name = "DIR", requires = "codetracer")]
    source_root: Option<PathBuf>,
}

/// The socket on which CodeTracer recordings are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CodetracerConfig {
    /// Path of the Unix socket.
    pub socket: PathBuf,
    /// Directory below which source files may be read when a recording names them. If absent, none
    /// are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_root: Option<PathBuf>,
    /// Largest source file that is copied, in bytes.
    #[serde(default = "default_source_bytes")]
    pub max_source_bytes: u64,
}

fn default_source_bytes() -> u64 {
    DEFAULT_SOURCE_BYTES
}

impl Frontend for CodetracerConfig {
    type Options = CodetracerOptions;

    fn apply_options(section: &mut Option<Self>, options: CodetracerOptions) {
        let Some(socket) = options.codetracer else {
            return;
        };
        let section = section.get_or_insert_with(|| Self {
            socket: PathBuf::new(),
            source_root: None,
            max_source_bytes: DEFAULT_SOURCE_BYTES,
        });
        section.socket = socket;
        if options.source_root.is_some() {
            section.source_root = options.source_root;
        }
    }

    fn sockets(&self) -> Vec<PathBuf> {
        vec![self.socket.clone()]
    }

    fn start(&self, context: FrontendContext) -> anyhow::Result<FrontendTask> {
        let session = &context.session;
        let settings = RecordingSettings {
            name: None,
            host: session.host.clone(),
            live_timer: session.live_timer(),
            packet_bytes: session.packet_bytes(),
            tracefiles: session.tracefiles(),
            source_root: self.source_root.clone(),
            max_source_bytes: self.max_source_bytes,
        };
        let listening = RecordingSocket::listen(&self.socket)
            .with_context(|| format!("cannot listen on {}", self.socket.display()))?;
        let served = serve(listening, settings, context.opener, context.stop);
        Ok(Box::pin(async {
            served.await;
            Ok(())
        }))
    }
}
