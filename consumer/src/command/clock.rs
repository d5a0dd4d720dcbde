//! `consumer clock`: an agent without frontends, which samples the clock until it is stopped.

use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::clock::{self, ClockSettings};
use crate::config::Config;

/// Writes samples of the clock until `stop` is cancelled. Returns whether the relay has
/// acknowledged all of them.
///
/// # Errors
/// If no relay is named, or its URL is malformed.
pub async fn sample_clock(config: Config, stop: CancellationToken) -> anyhow::Result<bool> {
    let agent = Agent::for_config(&config, &stop)?;
    let settings = ClockSettings::of(&config, true)?;
    clock::run(settings, agent.opener(), stop).await;
    Ok(agent.finish().await?.lost == 0)
}
