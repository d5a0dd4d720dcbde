//! What the environment of a trace says of its events: host, process and domain.

use ctf::metadata::Trace;
use ctf::model::EnvironmentValue;

/// The process of a trace, as its environment says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Environment<'a> {
    /// The name of the traced host.
    pub host: Option<&'a str>,
    /// The name of the process that all events are of.
    pub process_name: Option<&'a str>,
    /// The id of that process.
    pub process: Option<i64>,
    /// Whether the trace is of a kernel.
    pub is_kernel: bool,
    /// Whether the trace is a recording of one thread, not of CPUs.
    pub is_recording: bool,
}

impl<'a> Environment<'a> {
    /// What the environment of `trace` says.
    #[must_use]
    pub fn of(trace: &'a Trace) -> Self {
        let text = |name| match trace.environment_value(name) {
            Some(EnvironmentValue::Text(text)) => Some(&**text),
            _ => None,
        };
        Self {
            host: text("hostname"),
            process_name: text("procname"),
            process: match trace.environment_value("vpid") {
                Some(EnvironmentValue::Integer(vpid)) => Some(*vpid),
                _ => None,
            },
            is_kernel: text("domain") == Some("kernel"),
            is_recording: false,
        }
    }

    /// The thread that events of the trace with this thread in their contexts are of. The contexts
    /// of a recording say nothing, and thread 0 of a kernel is what an idle CPU runs, one for each
    /// CPU.
    pub fn thread(self, thread: Option<i64>) -> Option<i64> {
        thread.filter(|thread| !self.is_recording && (*thread != 0 || !self.is_kernel))
    }

    /// Returns the environment of a recording of `program`, if the trace is one.
    pub fn of_program(self, program: Option<&'a str>) -> Self {
        Self {
            process_name: program
                .filter(|name| !name.is_empty())
                .or(self.process_name),
            is_recording: program.is_some(),
            ..self
        }
    }
}
