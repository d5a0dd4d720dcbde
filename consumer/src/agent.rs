//! The running agent: the uplink, and the frontends that open sessions on it.

use std::time::Duration;

use anyhow::Context;
use thiserror::Error;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::clock::{self, ClockSettings};
use crate::config::Config;
use crate::frontend::FrontendContext;
use crate::queue::{QueueCapacity, SessionOpener, session_channel};
use crate::spool::{self, RunningSpool, SpoolSettings};
use crate::status::{self, EndedSessions, StatusRegistry};
use crate::uplink;

/// Neither the command line nor the configuration enables a frontend.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// A running uplink, on which frontends open sessions.
#[derive(Debug)]
pub struct Agent {
    opener: SessionOpener,
    registry: StatusRegistry,
    uplink: JoinHandle<()>,
    spool: Option<RunningSpool>,
}

impl Agent {
    /// Starts the uplink of a configuration, and its spool. Packets that no relay has acknowledged
    /// by the stop timeout after `stop` is cancelled stay in the spool; without a spool they are
    /// lost.
    ///
    /// # Errors
    /// If no relay is named, its URL is malformed, or the spool cannot be used.
    pub fn for_config(config: &Config, stop: &CancellationToken) -> anyhow::Result<Self> {
        let stop_timeout = Duration::from_secs(config.agent.stop_within_s.into());
        let uplink = config.uplink()?;
        let spool = config.spool.as_ref();
        Self::start(uplink, config.queue, spool, stop, stop_timeout)
    }

    /// Starts an uplink with these settings, and a spool if there are settings for one.
    ///
    /// # Errors
    /// If the spool cannot be used.
    pub(crate) fn start(
        settings: uplink::UplinkSettings,
        queue_capacity: QueueCapacity,
        spool: Option<&SpoolSettings>,
        stop: &CancellationToken,
        stop_timeout: Duration,
    ) -> anyhow::Result<Self> {
        let (opener, sessions) = session_channel(queue_capacity);
        let registry = StatusRegistry::default();
        let give_up = CancellationToken::new();
        let (spool, sessions) = match spool {
            None => (None, sessions),
            Some(settings) => {
                let counters = registry.add_spool();
                let started = spool::start(
                    sessions,
                    settings,
                    queue_capacity,
                    counters,
                    give_up.clone(),
                );
                let (spool, sessions) = started?;
                (Some(spool), sessions)
            }
        };
        let uplink = uplink::run(sessions, settings, registry.clone(), give_up.clone());
        let stop = stop.clone();
        // Two tokens: `stop` ends the frontends, while the uplink still sends the packets that they
        // have queued.
        tokio::spawn(async move {
            stop.cancelled().await;
            tokio::time::sleep(stop_timeout).await;
            give_up.cancel();
        });
        Ok(Self {
            opener,
            registry,
            uplink: tokio::spawn(uplink),
            spool,
        })
    }

    /// Returns an opener of sessions. All openers must be dropped before [`finish`](Self::finish).
    #[must_use]
    pub fn opener(&self) -> SessionOpener {
        self.opener.clone()
    }

    /// Waits until all sessions have ended. Frontends must have dropped their openers before.
    ///
    /// # Errors
    /// If the uplink or the spool has panicked.
    pub async fn finish(self) -> anyhow::Result<EndedSessions> {
        // The last opener: the uplink ends when it is dropped and all sessions have ended.
        drop(self.opener);
        self.uplink.await?;
        // After the uplink, whose last acknowledgements go to the spool.
        if let Some(spool) = self.spool {
            spool.finish().await?;
        }
        let (_, ended) = self.registry.sessions();
        Ok(ended)
    }
}

/// Runs the agent with all frontends of the configuration, until `stop`.
///
/// # Errors
/// If the agent cannot start, a frontend fails, or packets were lost.
pub async fn serve(config: Config, stop: CancellationToken) -> anyhow::Result<()> {
    config.check()?;
    let agent = Agent::for_config(&config, &stop)?;
    let mut frontends = start_frontends(&config, &agent, &stop)?;
    if frontends.is_empty() && config.spool.is_none() {
        return Err(nothing_to_serve().into());
    }
    let socket = &config.agent.status_socket;
    let status = status::listen(socket, agent.registry.clone())
        .with_context(|| format!("cannot listen on {}", socket.display()))?;
    let clock = match config.agent.clock_interval_ms > 0 && !frontends.is_empty() {
        true => {
            let settings = ClockSettings::of(&config, false)?;
            // It ends with the last frontend, also if that has failed.
            let stop = stop.child_token();
            let clock = clock::run(settings, agent.opener(), stop.clone());
            Some((tokio::spawn(clock), stop))
        }
        false => None,
    };
    info!("ready");
    let mut failed = None;
    while let Some(ended) = frontends.join_next().await {
        if let Err(error) = ended.map_err(anyhow::Error::from).flatten() {
            error!("frontend failed: {error:#}");
            failed.get_or_insert(error);
        }
    }
    if let Some((clock, stop)) = clock {
        stop.cancel();
        clock.await?;
    }
    let ended = agent.finish().await?;
    // Not before: `consumer status` shows how the queues drain.
    drop(status);
    match failed {
        Some(error) => Err(error),
        None if ended.lost > 0 => Err(anyhow::anyhow!("{} packets were lost", ended.lost)),
        None => Ok(()),
    }
}

/// Starts every frontend of the configuration. Each ends when `stop` is cancelled.
fn start_frontends(
    config: &Config,
    agent: &Agent,
    stop: &CancellationToken,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let context = FrontendContext {
        session: config.session.clone(),
        base_path: config.relay.target()?.base_path,
        is_spooled: config.spool.is_some(),
        opener: agent.opener(),
        stop: stop.clone(),
    };
    let mut frontends = JoinSet::new();
    for frontend in config.frontends() {
        frontends.spawn(frontend.start(context.clone())?);
    }
    Ok(frontends)
}

/// Says how something to serve is enabled.
fn nothing_to_serve() -> UsageError {
    let list = |before: &str, after: &str| {
        let names = Config::FRONTENDS.iter();
        let names: Vec<_> = names.map(|name| format!("{before}{name}{after}")).collect();
        format!("{} or {before}spool{after}", names.join(", "))
    };
    let (options, sections) = (list("--", ""), list("[", "]"));
    UsageError(format!(
        "nothing to serve: use {options}, or add {sections} to the configuration"
    ))
}
