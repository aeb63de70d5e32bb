//! Prints the traffic file that ships, as the generator makes it now.

fn main() {
    print!("{}", datasets::sample_traffic());
}
