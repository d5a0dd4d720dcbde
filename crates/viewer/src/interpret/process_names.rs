//! The names of processes, as events tell them that are about a process: what the context
//! `procname` says of the process of an event is in `process_context`.

use std::borrow::Cow;

use ::tef::Record;
use ::tef::ctf::{Decoded, RecordDecoder};
use ::tef::event::OwnerId;
use ctf::decode::Event;
use serde::Deserialize;

use super::environment::Environment;
use super::interpreted_fields::InterpretedFields;
use super::kernel_threads::KernelFields;

/// Finds the names of processes in events.
#[derive(Default)]
pub struct ProcessNames {
    sent: RecordDecoder,
    fields: InterpretedFields,
}

impl ProcessNames {
    /// Returns a process and its name, if the event tells one.
    pub fn read(&mut self, event: &Event<'_>) -> Option<(OwnerId<'static>, String)> {
        let class = event.class().name()?;
        match class {
            "tef:client" | "tef:metadata" => self.sent(event, class),
            "lttng_ust_statedump:procname" | "lttng_statedump_process_state" => {
                self.declared(event, class)
            }
            // Without contexts no event of a kernel is of a process, and this one is frequent.
            "sched_switch"
                if event.stream_class().event_context().is_some()
                    || event.class().context().is_some() =>
            {
                self.declared(event, class)
            }
            _ => None,
        }
    }

    fn sent(&mut self, event: &Event<'_>, class: &str) -> Option<(OwnerId<'static>, String)> {
        self.sent.clear();
        event.visit_fields(&mut self.sent).ok()?;
        match self.sent.decode(class)? {
            Decoded::Client(client) => {
                let program = client.exe.rsplit('/').next().unwrap_or_default();
                let process = OwnerId::Number(client.pid?.into());
                (!program.is_empty()).then(|| (process, program.to_owned()))
            }
            Decoded::Record {
                record: Record::Event(sent),
                ..
            } if sent.name.as_deref() == Some("process_name") => {
                let name = told_name(&sent).filter(|name| !name.is_empty())?;
                Some((sent.process()?.into_owned(), name))
            }
            _ => None,
        }
    }

    fn declared(&mut self, event: &Event<'_>, class: &str) -> Option<(OwnerId<'static>, String)> {
        self.fields.clear();
        event.visit_fields(&mut self.fields).ok()?;
        let fields = &self.fields;
        let (process, name): (_, Cow<'_, [u8]>) = match class {
            "lttng_ust_statedump:procname" => {
                let process = fields.process();
                let process = process.or(Environment::of(event.trace()).process);
                (process?, fields.comm("procname").into())
            }
            // The name of the first thread is that of the process.
            "lttng_statedump_process_state" => {
                let process = fields.number(&["pid"])?;
                let is_first = fields.number(&["tid"]) == Some(process);
                (process, is_first.then_some(&*fields.name)?.into())
            }
            // Of another thread than the first, nobody asks for the number as that of a process.
            _ => (
                fields.number(&["next_tid"])?,
                fields.comm("next_comm").into(),
            ),
        };
        let name = String::from_utf8_lossy(&name).into_owned();
        (!name.is_empty()).then_some((OwnerId::Number(process), name))
    }
}

/// Returns the name that an event of the phase `M` gives a process or thread.
pub(super) fn told_name(sent: &::tef::Event<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct NameArgument {
        name: String,
    }
    let args = sent.args.unwrap_or_default();
    let NameArgument { name } = serde_json::from_str(args).ok()?;
    Some(name)
}
