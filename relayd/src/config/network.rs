//! What is asked of every connection, as the environment says it.

use std::ffi::OsString;
use std::time::Duration;

use crate::cli::switch;
use crate::limits::{
    KEEP_ALIVE_IDLE, KEEP_ALIVE_INTERVAL, PRODUCER_USER_TIMEOUT, READ_TIMEOUT, VIEWER_READ_TIMEOUT,
    WRITE_TIMEOUT,
};

const TIMEOUT: &str = "LTTNG_NETWORK_SOCKET_TIMEOUT";
const KEEP_ALIVE: &str = "LTTNG_RELAYD_TCP_KEEP_ALIVE";
const IDLE_TIME: &str = "LTTNG_RELAYD_TCP_KEEP_ALIVE_IDLE_TIME";
const PROBE_INTERVAL: &str = "LTTNG_RELAYD_TCP_KEEP_ALIVE_PROBE_INTERVAL";
const MAX_PROBE_COUNT: &str = "LTTNG_RELAYD_TCP_KEEP_ALIVE_MAX_PROBE_COUNT";
const ABORT_THRESHOLD: &str = "LTTNG_RELAYD_TCP_KEEP_ALIVE_ABORT_THRESHOLD";

/// What is asked of every connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// How it is asked whether the peer still is there. None: not at all.
    pub keep_alive: Option<KeepAlive>,
    /// The same for producers.
    pub producer_keep_alive: Option<KeepAlive>,
    /// How long a peer is waited for.
    pub timeouts: Timeouts,
    /// Variables that make no sense, to be told once there is a log.
    pub warnings: Vec<String>,
}

/// How the system asks whether a silent peer still is there. None: as it does by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// After so much silence.
    pub idle: Option<Duration>,
    /// Every so often.
    pub interval: Option<Duration>,
    /// So many times without an answer.
    pub probes: Option<u32>,
    /// When nothing was answered for so long, the connection is lost.
    pub abort: Option<Duration>,
}

/// How long the relay waits for a peer that has begun to send something, or is to read a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the next bytes of a packet or command of a producer.
    pub producer_read: Duration,
    /// For the rest of a viewer's command.
    pub viewer_read: Duration,
    /// For the peer to read the next bytes of a reply.
    pub write: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            producer_read: READ_TIMEOUT,
            viewer_read: VIEWER_READ_TIMEOUT,
            write: WRITE_TIMEOUT,
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::told_by(&|_| None)
    }
}

impl Network {
    /// As the variables say that `env` looks up. One that makes no sense counts for nothing, as with
    /// the reference.
    #[must_use]
    pub fn told_by(env: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let mut variables = Variables {
            env,
            warnings: Vec::new(),
        };
        let abort = variables.number(ABORT_THRESHOLD);
        let keep_alive = variables.switch(KEEP_ALIVE).unwrap_or(true).then(|| {
            let seconds = |number: Asked| number.map(|number| number.map(Duration::from_secs));
            KeepAlive {
                idle: seconds(variables.number(IDLE_TIME)).unwrap_or(Some(KEEP_ALIVE_IDLE)),
                interval: seconds(variables.number(PROBE_INTERVAL))
                    .unwrap_or(Some(KEEP_ALIVE_INTERVAL)),
                probes: variables
                    .number(MAX_PROBE_COUNT)
                    .flatten()
                    .and_then(|count| u32::try_from(count).ok()),
                abort: seconds(abort).flatten(),
            }
        });
        let timeouts = match variables.number(TIMEOUT).flatten() {
            Some(milliseconds) => {
                let all = Duration::from_millis(milliseconds);
                Timeouts {
                    producer_read: all,
                    viewer_read: all,
                    write: all,
                }
            }
            None => Timeouts::default(),
        };
        let producer_keep_alive = keep_alive.map(|keep_alive| KeepAlive {
            abort: match abort {
                None => Some(PRODUCER_USER_TIMEOUT),
                Some(_) => keep_alive.abort,
            },
            ..keep_alive
        });
        Self {
            keep_alive,
            producer_keep_alive,
            timeouts,
            warnings: variables.warnings,
        }
    }
}

/// A number that was asked for: `Some(None)` is 0 or -1, "as the system does".
type Asked = Option<Option<u64>>;

struct Variables<'a> {
    env: &'a dyn Fn(&str) -> Option<OsString>,
    warnings: Vec<String>,
}

impl Variables<'_> {
    fn switch(&mut self, name: &str) -> Option<bool> {
        let value = (self.env)(name)?;
        let switched = value.to_str().and_then(switch);
        self.doubt(name, switched.is_none());
        switched
    }

    fn number(&mut self, name: &str) -> Asked {
        let value = (self.env)(name)?;
        // What the system's calls can take.
        let number = value
            .to_str()
            .and_then(|value| value.trim().parse::<i32>().ok());
        let number = number.filter(|number| *number >= -1);
        self.doubt(name, number.is_none());
        number.map(|number| u64::try_from(number).ok().filter(|number| *number > 0))
    }

    fn doubt(&mut self, name: &str, is_wrong: bool) {
        if is_wrong {
            self.warnings
                .push(format!("{name} makes no sense and is not heeded"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(variables: &[(&str, &str)]) -> Network {
        Network::told_by(&|name| {
            let set = variables.iter().find(|(set, _)| *set == name);
            set.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn peers_are_asked_whether_they_are_there_unless_that_is_switched_off() {
        let usual = network(&[]).keep_alive.unwrap();
        assert_eq!(usual.idle, Some(KEEP_ALIVE_IDLE));
        assert_eq!((usual.probes, usual.abort), (None, None));
        let producer = network(&[]).producer_keep_alive.unwrap();
        assert_eq!(producer.abort, Some(PRODUCER_USER_TIMEOUT));
        for (value, want) in [
            ("9", Some(Duration::from_secs(9))),
            ("0", None),
            ("-1", None),
        ] {
            let told = network(&[(ABORT_THRESHOLD, value)]);
            assert_eq!(told.producer_keep_alive.unwrap().abort, want);
            assert_eq!(told.producer_keep_alive, told.keep_alive);
        }
        assert_eq!(network(&[(KEEP_ALIVE, "0")]).keep_alive, None);
        let told = network(&[
            (KEEP_ALIVE, "1"),
            (IDLE_TIME, "7"),
            (PROBE_INTERVAL, "-1"),
            (MAX_PROBE_COUNT, "3"),
            (ABORT_THRESHOLD, "9"),
        ]);
        assert_eq!(
            told.keep_alive,
            Some(KeepAlive {
                idle: Some(Duration::from_secs(7)),
                interval: None,
                probes: Some(3),
                abort: Some(Duration::from_secs(9)),
            })
        );
        assert!(told.warnings.is_empty());
    }

    #[test]
    fn the_timeout_is_in_milliseconds_and_0_is_none() {
        let timeouts = network(&[(TIMEOUT, "1500")]).timeouts;
        assert_eq!(timeouts.producer_read, Duration::from_millis(1500));
        assert_eq!(timeouts.write, timeouts.viewer_read);
        for none in ["0", "-1"] {
            assert_eq!(network(&[(TIMEOUT, none)]).timeouts, Timeouts::default());
        }
    }

    #[test]
    fn what_makes_no_sense_is_told_and_not_heeded() {
        let network = network(&[(KEEP_ALIVE, "perhaps"), (IDLE_TIME, "x"), (TIMEOUT, "-7")]);
        assert_eq!(network.warnings.len(), 3);
        assert_eq!(network.keep_alive, Network::default().keep_alive);
        assert_eq!(network.timeouts, Timeouts::default());
    }
}
