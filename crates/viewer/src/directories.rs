//! Complete directories: how they are opened, and whether several threads read them.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread;

use ctf::directory::{DirectoryError, OpenedTraces, TraceDirectory};

use crate::align::{AlignBy, AlignedHosts, Alignment};
use crate::attach::{MemoryBudget, TraceKey};
use crate::mux::slices::{self, CompleteTrace};
use crate::mux::{Mux, Stage};
use crate::progress;
use crate::select::Select;
use crate::sink::{Renderer, SinkError};
use crate::with_sources;

/// Opens the traces of complete directories, and reports those that cannot be read.
///
/// # Errors
/// If none can be read.
pub fn open_traces(
    directories: &[PathBuf],
    mut report_failure: impl FnMut(&str),
) -> Result<Vec<TraceDirectory>, DirectoryError> {
    let OpenedTraces {
        traces,
        mut unreadable,
    } = ctf::directory::open(directories)?;
    // Without any trace, one of these errors says why. It is returned, not reported twice.
    let fatal = unreadable.pop_if(|_| traces.is_empty());
    for error in unreadable {
        report_failure(&format!("{}; it is left out", with_sources(&error)));
    }
    fatal.map_or(Ok(traces), Err)
}

/// How complete directories are read.
#[derive(Debug, Clone, Copy)]
pub struct DirectoryOptions {
    /// Whether a progress bar is drawn on standard error.
    pub shows_progress: bool,
    /// Whether only the time is shown in which all streams of a trace are active.
    pub is_intersection: bool,
    /// By what the times of events are corrected, if they are.
    pub align: Option<AlignBy>,
    /// Whether nothing is reported but errors and warnings.
    pub is_quiet: bool,
}

/// Opens complete directories, and reports what is unusual in their metadata. `alignment` says how
/// clocks are related; if it is absent, the directories do.
///
/// # Errors
/// If none can be read.
pub fn open(
    directories: &[PathBuf],
    options: DirectoryOptions,
    alignment: Option<&Alignment>,
    select: &mut Select,
) -> Result<Vec<CompleteTrace>, DirectoryError> {
    let mut traces = open_traces(directories, |what| select.report_failure(what))?;
    let hosts = AlignedHosts::of_traces(&mut traces, alignment, options.align);
    select.set_progress_bar(progress::of_directories(&traces, !options.shows_progress));
    if !options.is_quiet {
        for notice in hosts.notices(options.align.is_some()) {
            select.report_notice(&notice);
        }
    }
    let open = |mut trace: TraceDirectory| {
        let mut is_refused = false;
        for warning in trace.metadata.take_warnings() {
            is_refused |= select.report_metadata_warning(&trace.name, &warning);
        }
        if is_refused {
            return None;
        }
        let key = TraceKey::fresh();
        if options.is_intersection {
            select.restrict_to_intersection(key, &trace);
        }
        Some(CompleteTrace::new(key, trace))
    };
    Ok(traces.into_iter().filter_map(open).collect())
}

/// Complete traces that are shown by several threads.
pub struct SlicedTraces {
    traces: Vec<CompleteTrace>,
    plan: slices::SlicePlan,
    /// The renderer of each thread; absent in it if events are only counted.
    renderers: Vec<Option<Box<dyn Renderer>>>,
}

/// Cuts traces into slices for several threads, or adds them to the mux if that is impossible or
/// would not be faster. `slices` says for how many threads, if users do; absent: none are made.
///
/// # Errors
/// If their metadata cannot be shown.
pub fn add(
    traces: Vec<CompleteTrace>,
    slices: Option<Option<usize>>,
    mux: &mut Mux,
    select: &mut Select,
) -> Result<Option<SlicedTraces>, SinkError> {
    let are_counted = select.counts_only();
    let threads = slices.flatten();
    let rules = slices::SliceRules {
        // One for each processor that this process may use, unless the user says otherwise.
        threads: threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZero::get)),
        is_forced: threads.is_some(),
        are_rendered: !are_counted,
    };
    let mut renderers = Vec::new();
    if slices.is_some() && select.shows_all() {
        // A sink without renderers ends the list early: no slices are planned then.
        let renderer = |_| match select.renderer() {
            None if !are_counted => None,
            renderer => Some(renderer),
        };
        renderers.extend((0..rules.threads).map_while(renderer));
    }
    let plan = (renderers.len() == rules.threads).then(|| slices::SlicePlan::new(&traces, rules));
    if let Some(plan) = plan.flatten() {
        return Ok(Some(SlicedTraces {
            traces,
            plan,
            renderers,
        }));
    }
    for trace in traces {
        mux.add_complete(&trace, select)?;
    }
    Ok(None)
}

impl SlicedTraces {
    /// Shows all slices, until `stop` says so. What is left of the traces then is added to the mux.
    pub fn show(
        self,
        mux: &mut Mux,
        memory: &MemoryBudget,
        select: &mut Select,
        stop: &impl Fn() -> bool,
    ) -> Result<(), SinkError> {
        slices::show(
            &self.traces,
            &self.plan,
            self.renderers,
            mux,
            memory,
            select,
            stop,
        )
    }
}
