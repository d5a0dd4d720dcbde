//! Prints the events of a trace in order of time:
//! `cargo run -p ctf --example read_trace -- DIRECTORY`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args()
        .nth(1)
        .ok_or("usage: read_trace DIRECTORY")?;
    let mut events = ctf::Trace::open(directory)?.events();
    for event in &mut events {
        let event = event?;
        println!("{} {event}", event.time.unwrap_or(0));
    }
    eprintln!("{:?}", events.losses());
    Ok(())
}
