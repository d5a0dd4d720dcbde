//! A place in a program that writes events.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::busy::Busy;
use crate::format::{EventClass, FieldType, SeverityClass};
use crate::producer::{count_lost_without_ring, filter_words, set_up};
use crate::thread::{return_ring, take_ring};
use crate::thread_ring::ThreadRing;
use crate::{EventWriter, Severity};

/// Types of the fields of an event. A constant beside its call site, so that a write compares one
/// number.
#[derive(Debug, Clone, Copy)]
pub struct FieldTypes {
    types: &'static [FieldType],
    signature: u32,
}

impl FieldTypes {
    /// A list of types, in the order of the fields.
    #[must_use]
    pub const fn new(types: &'static [FieldType]) -> Self {
        let mut signature: u32 = 0x811c_9dc5;
        let mut rest = types;
        while let [first, tail @ ..] = rest {
            signature = (signature ^ (first.code() as u32)).wrapping_mul(0x0100_0193);
            rest = tail;
        }
        Self { types, signature }
    }
}

/// No answer: its generation does not fit into 32 bits.
const NOT_ASKED: u64 = u64::MAX;

/// A place in a program that writes events of one name. Lives as a `static` (or is leaked),
/// registers itself in `meta` at its first event, and keeps the answer of the filter.
#[derive(Debug)]
pub struct CallSite {
    severity: Severity,
    target: &'static str,
    name: &'static str,
    file: &'static str,
    line: u32,
    fields: &'static [&'static str],
    /// The filter's answer: generation of the filter shifted by one, lowest bit set when enabled;
    /// or [`NOT_ASKED`].
    answer: AtomicU64,
    /// The event class last written: signature of its types, 16 bits of the process's generation,
    /// and id.
    class: AtomicU64,
}

impl CallSite {
    /// A call site that has written nothing yet. `fields` are the names of the fields; their types
    /// come with each event, and each combination of types is an event class of its own.
    #[must_use]
    pub const fn new(
        severity: Severity,
        target: &'static str,
        name: &'static str,
        file: &'static str,
        line: u32,
        fields: &'static [&'static str],
    ) -> Self {
        let (answer, class) = (AtomicU64::new(NOT_ASKED), AtomicU64::new(0));
        Self {
            severity,
            target,
            name,
            file,
            line,
            fields,
            answer,
            class,
        }
    }

    /// Returns the severity of the events.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.severity
    }

    /// Whether the filter lets the call site's events pass. Costs about a nanosecond.
    #[inline]
    pub fn is_enabled(&'static self) -> bool {
        if !may_pass(self.severity) {
            return false;
        }
        let answer = self.answer.load(Ordering::Relaxed);
        if answer >> 1 == u64::from(filter_words().generation()) {
            answer & 1 == 1
        } else {
            self.ask_filter(answer)
        }
    }

    #[cold]
    fn ask_filter(&self, last_answer: u64) -> bool {
        let Some(busy) = Busy::enter() else {
            // A signal handler in the middle of a slow path: the best guess will do.
            return if last_answer == NOT_ASKED {
                self.severity <= Severity::Info
            } else {
                last_answer & 1 == 1
            };
        };
        let (is_enabled, generation) = match set_up(&busy) {
            Some(producer) => producer.process.is_enabled(self.target, self.severity),
            None => (false, filter_words().generation()),
        };
        self.answer.store(
            u64::from(generation) << 1 | u64::from(is_enabled),
            Ordering::Relaxed,
        );
        is_enabled
    }

    /// Begins an event whose fields take at most `size` bytes: put them in the order of `types`,
    /// then [commit](EventWriter::commit). Does not ask the filter. After a thread's first event
    /// and a call site's first event there is no allocation, lock or system call (threads that
    /// share a ring take a lock).
    ///
    /// `None` when the event is lost (it has been counted) or tracing is off.
    // `begin` and what it calls are inlined always: a writer that is returned through memory costs
    // 7 ns more.
    #[inline(always)]
    pub fn begin(&'static self, types: &FieldTypes, size: usize) -> Option<EventWriter> {
        let class = if self.severity <= Severity::Info {
            SeverityClass::Normal
        } else {
            SeverityClass::Debug
        };
        let ring = take_ring(class)?;
        // Acquire: a reader that sees the event sees its class in `meta`.
        let word = self.class.load(Ordering::Acquire);
        let id = if word >> 16 == class_key(types, ring.generation) {
            word & u64::from(u16::MAX)
        } else {
            match self.register(types, &ring) {
                Some(id) => id.into(),
                None => {
                    count_lost_without_ring();
                    return_ring(ring);
                    return None;
                }
            }
        };
        EventWriter::begin(ring, u32::try_from(id).unwrap_or_default(), size)
    }

    #[cold]
    fn register(&self, types: &FieldTypes, ring: &ThreadRing) -> Option<u16> {
        let _busy = Busy::enter()?;
        let fields = self.fields.iter().zip(types.types);
        let id = ring.process.register(EventClass {
            id: 0,
            severity: self.severity,
            line: self.line,
            target: self.target.to_owned(),
            file: self.file.to_owned(),
            name: self.name.to_owned(),
            fields: fields
                .map(|(name, kind)| ((*name).to_owned(), *kind))
                .collect(),
        })?;
        let id = u16::try_from(id).ok()?;
        let word = class_key(types, ring.generation) << 16 | u64::from(id);
        self.class.store(word, Ordering::Release);
        Some(id)
    }
}

/// Whether the filter lets events of this severity pass for any target. With a severity that the
/// compiler knows it is one comparison.
#[inline(always)]
pub fn may_pass(severity: Severity) -> bool {
    filter_words().max_severity() >= u32::from(severity.code())
}

/// Returns what a call site's class depends on, beside the call site.
#[inline]
fn class_key(types: &FieldTypes, generation: u32) -> u64 {
    u64::from(types.signature) << 16 | u64::from(generation & u32::from(u16::MAX))
}
