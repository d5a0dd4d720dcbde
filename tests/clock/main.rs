//! Clocks of several hosts: samples of one beside the other, with times of day that are shifted and
//! set, slow links, killed programs and relays of LTTng.

mod align;
mod links;
mod samples;
mod shifted_clock;
mod steps;
