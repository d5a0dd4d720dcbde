//! The sources of events. Each frontend is one module: it opens sessions at a [`SessionOpener`],
//! and knows no relay and no other frontend.
//!
//! A frontend of `consumer serve` is a module here with an implementation of [`Frontend`], and a
//! row in the list `frontends`; the agent, its configuration, its command line and
//! `consumer doctor` take everything from there. The frontend `replay` has no row: it ends by
//! itself, and is a command.

pub mod codetracer;
pub mod replay;
pub mod ring;
mod session_config;
pub mod tldrs;

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::pin::Pin;

use daemon::checkup::Report;
use tokio_util::sync::CancellationToken;

use crate::queue::SessionOpener;
pub use session_config::{SessionConfig, host_name};

/// The frontends of `consumer serve`, in the order in which they are shown and started: passes the
/// list to a macro. A row has the name of the module, which is also that of the section in the
/// configuration file and of the option that enables the frontend, and the type of the section.
macro_rules! frontends {
    ($expand:ident) => {
        $expand! {
            tldrs: DaemonOptions,
            ring: RingConfig,
            codetracer: CodetracerConfig,
        }
    };
}
pub(crate) use frontends;

/// A frontend of `consumer serve`, implemented by its section of the configuration file.
pub trait Frontend: Debug {
    /// The options that enable the frontend and override its section.
    type Options: clap::Args
    where
        Self: Sized;

    /// Overrides a section by options; an absent section is created if they enable the frontend.
    fn apply_options(section: &mut Option<Self>, options: Self::Options)
    where
        Self: Sized;

    /// Returns the values of the section that have a range.
    fn bounded_settings(&self) -> Vec<BoundedSetting> {
        Vec::new()
    }

    /// Returns the paths of the Unix sockets that the frontend listens on.
    fn sockets(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Checks for `consumer doctor` what the frontend needs of this host besides its sockets.
    fn check_host(&self, _report: &mut Report) {}

    /// Starts the frontend. The task ends when the token of the context is cancelled, and drops all
    /// openers before. To be called on a tokio runtime.
    ///
    /// # Errors
    /// If the frontend cannot be started.
    fn start(&self, context: FrontendContext) -> anyhow::Result<FrontendTask>;
}

/// A setting and its range: the key as it is written in the file, with its section; the value; and
/// the smallest and the largest allowed value.
pub type BoundedSetting = (&'static str, u64, RangeInclusive<u64>);

/// A running frontend: the future ends when the frontend has stopped or failed.
pub type FrontendTask = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// What the agent gives to each frontend that it starts.
#[derive(Debug, Clone)]
pub struct FrontendContext {
    /// Properties of the sessions.
    pub session: SessionConfig,
    /// Path below which the relay writes the sessions; empty: below the host's directory.
    pub base_path: String,
    /// Whether packets are kept in a spool.
    pub is_spooled: bool,
    /// Where sessions are opened.
    pub opener: SessionOpener,
    /// Ends the frontend when it is cancelled.
    pub stop: CancellationToken,
}
