//! The section `[tldrs]` of the configuration file, and the options that override it.

use std::path::PathBuf;

use clap::Args;
use tldrs_daemon::limits::{MAX_CLIENTS, MAX_LINE_BYTES, MAX_TRACES, MIN_LINE_BYTES};
use tldrs_daemon::{Daemon, DaemonOptions};

use super::{ForwardSettings, start_forwarding};
use crate::frontend::{BoundedSetting, Frontend, FrontendContext, FrontendTask};

/// The options of `consumer serve` for a `tldrs` daemon.
#[derive(Debug, Args)]
pub struct TldrsOptions {
    /// Run a tldrs daemon in the agent, which listens on SOCKET, and forward its traces [default
    /// SOCKET: $XDG_RUNTIME_DIR/tldrs.socket and /tmp/tldrs.socket]
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true)]
    tldrs: Option<Option<PathBuf>>,
    /// Store the traces of the tldrs daemon in DIR [default: $XDG_DATA_HOME/tldrs, or
    /// ~/.local/share/tldrs]
    #[arg(long, value_name = "DIR", requires = "tldrs")]
    tldrs_dir: Option<PathBuf>,
}

impl Frontend for DaemonOptions {
    type Options = TldrsOptions;

    fn apply_options(section: &mut Option<Self>, options: TldrsOptions) {
        let Some(socket) = options.tldrs else { return };
        let section = section.get_or_insert_default();
        if let Some(socket) = socket {
            section.sockets = vec![socket];
        }
        if options.tldrs_dir.is_some() {
            section.directory = options.tldrs_dir;
        }
    }

    fn bounded_settings(&self) -> Vec<BoundedSetting> {
        let line_bytes = MIN_LINE_BYTES as u64..=MAX_LINE_BYTES as u64;
        let clients = 1..=MAX_CLIENTS.into();
        let traces = 1..=MAX_TRACES.into();
        vec![
            ("tldrs.max-line", self.max_line as u64, line_bytes),
            ("tldrs.max-clients", self.max_clients as u64, clients),
            ("tldrs.max-traces", self.max_traces as u64, traces),
        ]
    }

    fn sockets(&self) -> Vec<PathBuf> {
        self.sockets.clone()
    }

    fn start(&self, context: FrontendContext) -> anyhow::Result<FrontendTask> {
        let settings = ForwardSettings::new(&context.session);
        let (forward, forwarded) = start_forwarding(context.opener, settings);
        let daemon = Daemon::start(self.settings()?, Some(forward))?;
        Ok(Box::pin(async move {
            // The forwarder ends when the daemon has ended and dropped its sending end.
            tokio::join!(daemon.run(context.stop), forwarded);
            Ok(())
        }))
    }
}
