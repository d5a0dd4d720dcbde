//! Keep-alive and timeouts of connections, from environment variables that LTTng's programs share.

use std::ffi::OsString;
use std::time::Duration;

use super::parse_boolean;
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

/// Keep-alive and timeouts of all connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// TCP keep-alive of viewers' and HTTP connections. None: disabled.
    pub keep_alive: Option<KeepAlive>,
    /// TCP keep-alive of producers' connections. None: disabled.
    pub producer_keep_alive: Option<KeepAlive>,
    /// Read and write timeouts.
    pub timeouts: Timeouts,
    /// Variables with invalid values, which were ignored. They are logged once the log is set up.
    pub warnings: Vec<String>,
}

/// TCP keep-alive of a socket. None: the default of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe (`TCP_KEEPIDLE`).
    pub idle: Option<Duration>,
    /// Time between probes (`TCP_KEEPINTVL`).
    pub interval: Option<Duration>,
    /// Unanswered probes after which the connection is lost (`TCP_KEEPCNT`).
    pub probes: Option<u32>,
    /// Time without an answer after which the connection is lost (`TCP_USER_TIMEOUT`).
    pub abort: Option<Duration>,
}

/// Timeouts of a peer that has sent part of a message, or does not read a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Timeout for the rest of a producer's command, and for the next bytes of a packet.
    pub producer_read: Duration,
    /// Timeout for the rest of a viewer's command.
    pub viewer_read: Duration,
    /// Timeout for the peer to read the next bytes of a reply.
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
        Self::from_environment(&|_| None)
    }
}

impl Network {
    /// Reads the variables through `env`. One with an invalid value is ignored, as `lttng-relayd`
    /// does.
    #[must_use]
    pub fn from_environment(env: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let mut variables = Variables {
            env,
            warnings: Vec::new(),
        };
        let abort = variables.number(ABORT_THRESHOLD);
        let keep_alive = variables.boolean(KEEP_ALIVE).unwrap_or(true).then(|| {
            let seconds =
                |number: NumericVariable| number.map(|number| number.map(Duration::from_secs));
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
        let mut timeouts = Timeouts::default();
        if let Some(milliseconds) = variables.number(TIMEOUT).flatten() {
            let all = Duration::from_millis(milliseconds);
            timeouts = Timeouts {
                producer_read: all,
                viewer_read: all,
                write: all,
            };
        }
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

/// Value of a numeric variable. None: not set. `Some(None)`: 0 or -1, which select the default of
/// the system.
type NumericVariable = Option<Option<u64>>;

struct Variables<'a> {
    env: &'a dyn Fn(&str) -> Option<OsString>,
    warnings: Vec<String>,
}

impl Variables<'_> {
    fn boolean(&mut self, name: &str) -> Option<bool> {
        let value = (self.env)(name)?;
        let boolean = value.to_str().and_then(parse_boolean);
        self.warn_if(name, boolean.is_none());
        boolean
    }

    fn number(&mut self, name: &str) -> NumericVariable {
        let value = (self.env)(name)?;
        // The socket options take an `int`.
        let number = value
            .to_str()
            .and_then(|value| value.trim().parse::<i32>().ok());
        let number = number.filter(|number| *number >= -1);
        self.warn_if(name, number.is_none());
        number.map(|number| u64::try_from(number).ok().filter(|number| *number > 0))
    }

    fn warn_if(&mut self, name: &str, is_invalid: bool) {
        if is_invalid {
            self.warnings
                .push(format!("invalid value of {name}; variable ignored"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(variables: &[(&str, &str)]) -> Network {
        Network::from_environment(&|name| {
            let set = variables.iter().find(|(set, _)| *set == name);
            set.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn keep_alive_is_enabled_by_default_and_set_by_variables() {
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
            let set = network(&[(ABORT_THRESHOLD, value)]);
            assert_eq!(set.producer_keep_alive.unwrap().abort, want);
            assert_eq!(set.producer_keep_alive, set.keep_alive);
        }
        assert_eq!(network(&[(KEEP_ALIVE, "0")]).keep_alive, None);
        let set = network(&[
            (KEEP_ALIVE, "1"),
            (IDLE_TIME, "7"),
            (PROBE_INTERVAL, "-1"),
            (MAX_PROBE_COUNT, "3"),
            (ABORT_THRESHOLD, "9"),
        ]);
        assert_eq!(
            set.keep_alive,
            Some(KeepAlive {
                idle: Some(Duration::from_secs(7)),
                interval: None,
                probes: Some(3),
                abort: Some(Duration::from_secs(9)),
            })
        );
        assert!(set.warnings.is_empty());
    }

    #[test]
    fn socket_timeout_is_in_milliseconds_and_0_selects_the_defaults() {
        let timeouts = network(&[(TIMEOUT, "1500")]).timeouts;
        assert_eq!(timeouts.producer_read, Duration::from_millis(1500));
        assert_eq!(timeouts.write, timeouts.viewer_read);
        for none in ["0", "-1"] {
            assert_eq!(network(&[(TIMEOUT, none)]).timeouts, Timeouts::default());
        }
    }

    #[test]
    fn network_variables_with_invalid_values_are_warned_of_and_ignored() {
        let network = network(&[(KEEP_ALIVE, "perhaps"), (IDLE_TIME, "x"), (TIMEOUT, "-7")]);
        assert_eq!(network.warnings.len(), 3);
        assert_eq!(network.keep_alive, Network::default().keep_alive);
        assert_eq!(network.timeouts, Timeouts::default());
    }
}
