//! The program of the live viewer: arguments, then the run until a signal, then the exit status.

use std::io;
use std::process::ExitCode;

use daemon::error_text::describe_error;
use daemon::logging;
use daemon::output::{has_colors, is_closed_output, print_message};
use daemon::signals::StopSignals;
use test_live::cli::{Arguments, Command};
use test_live::info;
use test_live::proxy;
use test_live::run::run;
use test_live::spans;
use test_live::top;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use viewer::run::{Outcome, Stop, UsageError};

/// The exit status after a second signal: that of a program which SIGINT has killed, as shells
/// report it.
const INTERRUPTED: i32 = 130;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_words(std::env::args_os());
    match arguments.command.take() {
        None => {
            init_logging(arguments.read.verbose);
            run_until_signal(false, |stop| run(&arguments, stop))
        }
        Some(Command::Info(info)) => exit_code(info::run(&info)),
        Some(Command::Proxy(proxy)) => exit_code(proxy::run(&proxy).map(|()| Outcome::Whole)),
        Some(Command::Spans(spans)) => {
            init_logging(spans.read.verbose);
            run_until_signal(false, |stop| spans::run(&spans, stop))
        }
        Some(Command::Top(top)) => run_until_signal(!top.batch, |stop| top::run(&top, stop)),
        Some(Command::Web(web)) => {
            init_logging(web.verbose);
            run_until_signal(false, |stop| timeline::run(web.settings()?, stop))
        }
    }
}

fn run_until_signal(
    has_screen: bool,
    run: impl FnOnce(&Stop) -> anyhow::Result<Outcome>,
) -> ExitCode {
    let stop = Stop::default();
    if let Err(error) = stop_on_signals(stop.clone(), has_screen) {
        print_message(format_args!(
            "test-live: error: cannot handle signals: {error}; not started"
        ));
        return ExitCode::FAILURE;
    }
    exit_code(run(&stop))
}

fn exit_code(ended: anyhow::Result<Outcome>) -> ExitCode {
    match ended {
        Ok(Outcome::Whole) => ExitCode::SUCCESS,
        Ok(Outcome::Partial) => ExitCode::FAILURE,
        // A reader that has seen enough, like `head`, is no failure of the viewer.
        Err(error) if is_closed_output(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            let error_text = describe_error(error.as_ref());
            print_message(format_args!("test-live: error: {error_text}"));
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}

/// Lets the first SIGINT or SIGTERM end the run in order, when all events that are certain have
/// been shown, and the second end the process at once. With a screen, SIGHUP ends the run too: its
/// terminal is gone.
fn stop_on_signals(stop: Stop, has_screen: bool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Signals belong to the runtime in which they are caught.
    let inside = runtime.enter();
    let mut signals = StopSignals::catch()?;
    if has_screen {
        let mut hangup = signal(SignalKind::hangup())?;
        let stop = stop.clone();
        runtime.spawn(async move {
            hangup.recv().await;
            stop.request();
        });
    }
    // The guard borrows the runtime, which moves to its thread.
    drop(inside);
    let wait = async move {
        signals.wait().await;
        stop.request();
        signals.wait().await;
        top::restore_terminal_before_exit();
        // Nothing is completed: whatever the first signal has begun takes too long for the user.
        std::process::exit(INTERRUPTED);
    };
    // A thread of its own, because the main thread may wait in a call that nothing interrupts.
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || runtime.block_on(wait))?;
    Ok(())
}

/// Logs to standard error, as `RUST_LOG` says, else as often as `-v` was given.
fn init_logging(verbose: u8) {
    let targets = std::env::var("RUST_LOG")
        .ok()
        // A value that cannot be read counts as none: logging is no reason to fail.
        .and_then(|text| text.parse().ok());
    let to_stderr = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(has_colors(&io::stderr()));
    tracing_subscriber::registry()
        .with(to_stderr)
        .with(targets.unwrap_or_else(|| Targets::new().with_default(logging::level(verbose))))
        .init();
}
