//! One slice, as a thread reads it.

use ctf::decode::Event;

use super::pieces::{LostInStream, PieceSender, SlicePiece};
use crate::attach::{Packet, TraceInfo, TraceKey};
use crate::mux::Stage;
use crate::sink::render::RenderedRun;
use crate::sink::{Loss, Origin, Renderer, SinkError};
use crate::time::Nanoseconds;

/// Bytes of text that are handed over at once.
const PIECE_BYTES: usize = 256 << 10;

/// Renders the events of a slice, or counts them.
pub(super) struct SliceRenderer<'a> {
    renderer: Option<&'a mut (dyn Renderer + 'static)>,
    sender: PieceSender<'a>,
    run: RenderedRun,
    counted: u64,
    is_unusual: bool,
    /// Whether nobody wants the pieces any more.
    is_unwanted: bool,
}

impl<'a> SliceRenderer<'a> {
    pub(super) fn new(
        renderer: Option<&'a mut (dyn Renderer + 'static)>,
        sender: PieceSender<'a>,
    ) -> Self {
        Self {
            renderer,
            run: sender.take_buffer(),
            sender,
            counted: 0,
            is_unusual: false,
            is_unwanted: false,
        }
    }

    /// Hands over what is left, and that this is all. `shown`: whether all events of the slice have
    /// been found.
    pub(super) fn end(mut self, shown: Result<(), SinkError>) {
        self.hand_over_events();
        let is_usual = shown.is_ok() && !self.is_unusual;
        self.send(if is_usual {
            SlicePiece::End
        } else {
            SlicePiece::Unusual
        });
        self.sender.return_buffer(self.run);
    }

    fn send(&mut self, piece: SlicePiece) {
        self.is_unwanted |= !self.sender.send(piece);
    }

    /// Hands over the events so far.
    fn hand_over_events(&mut self) {
        if self.run.events() > 0 {
            let run = std::mem::replace(&mut self.run, self.sender.take_buffer());
            self.send(SlicePiece::Rendered(run));
        }
        match std::mem::take(&mut self.counted) {
            0 => {}
            counted => self.send(SlicePiece::Counted(counted)),
        }
    }

    fn wants_more(&self) -> bool {
        !self.is_unusual && !self.is_unwanted
    }
}

impl Stage for SliceRenderer<'_> {
    #[inline]
    fn event(
        &mut self,
        event: &Event<'_>,
        _time: Option<Nanoseconds>,
        origin: Origin<'_>,
    ) -> Result<bool, SinkError> {
        if !self.wants_more() {
            return Ok(false);
        }
        match self.renderer.as_deref_mut() {
            Some(renderer) => self.run.add(renderer, event, origin)?,
            None => self.counted += 1,
        }
        // Large enough that handing over costs nothing, small enough that output comes steadily.
        if self.run.bytes() >= PIECE_BYTES {
            self.hand_over_events();
        }
        Ok(true)
    }

    fn counts_only(&self) -> bool {
        self.renderer.is_none()
    }

    #[inline]
    fn count_event(
        &mut self,
        _time: Option<Nanoseconds>,
        _trace: TraceKey,
    ) -> Result<bool, SinkError> {
        let wants_more = self.wants_more();
        self.counted += u64::from(wants_more);
        Ok(wants_more)
    }

    fn packet(&mut self, _packet: &Packet, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn metadata(&mut self, _bytes: &[u8], _trace: &TraceInfo) -> Result<(), SinkError> {
        Ok(())
    }

    fn lost(&mut self, loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        if self.wants_more() {
            // What was found before the loss is shown before it.
            self.hand_over_events();
            self.send(SlicePiece::Lost(Box::new(LostInStream {
                loss: *loss,
                trace: origin.trace.clone(),
                stream: origin.stream.clone(),
            })));
        }
        Ok(())
    }

    fn report_failure(&mut self, _what: &str) {
        self.is_unusual = true;
    }

    fn report_warning(&mut self, _what: &str) {
        self.is_unusual = true;
    }
}
