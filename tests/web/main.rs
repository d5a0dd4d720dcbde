//! `test-live web` in a real browser: events of real programs appear in the page.

mod access;
mod accessibility;
mod details;
mod expected;
mod flows;
mod functions;
mod hostile;
mod hostile_requests;
mod kernel;
mod made_recording;
mod perfetto;
mod perfetto_collections;
mod perfetto_format;
mod perfetto_json;
mod perfetto_tldrs;
mod pixels;
mod ranges;
mod raw_page;
mod scale;
mod several;
mod shown;
mod summary;
mod system;
mod timeline;
mod tracks;
mod truth;
