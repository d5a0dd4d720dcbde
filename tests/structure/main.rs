//! Rules about the source tree itself: layers of modules, sizes, names of files and commands in
//! pages, dependencies, printing.

mod commands;
mod dependencies;
mod layers;
mod pages;
mod printing;
mod publish;
mod sizes;
mod source;
mod targets;
mod words;
