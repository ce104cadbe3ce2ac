//! What the PTX of a kernel shows against launching it before the launch ahead has ended.

/// Why no entry of a text that never waits may be launched so.
const NEVER_WAITS: &str = "is a dependent launch, and never executes griddepcontrol.wait: it may read what the launch ahead has not \
                           written yet";

/// Why an entry may not that reads as of constants.
const READS_CONSTANTS: &str = "is a dependent launch, and loads by ld.global.nc: ptxas moves such loads in front of \
                               griddepcontrol.wait. Behind the wait, read through no pointer that is const __restrict__, or one \
                               that went through an empty asm volatile";

/// The entries of a PTX text that may not be dependent launches, and why.
pub fn objections(text: &str) -> Vec<(&str, &'static str)> {
    let mut functions = text.split(".entry ");
    // A function that an entry calls may wait for it.
    let others_wait = functions.next().is_some_and(waits);
    let objection = |entry| {
        let name = str::split(entry, ['(', '\n', ' ']).next()?;
        let body = str::split(entry, "\n}").next()?;
        let why = if !waits(body) && !others_wait {
            NEVER_WAITS
        } else if body.contains("ld.global.nc") {
            READS_CONSTANTS
        } else {
            return None;
        };
        Some((name, why))
    };
    functions.filter_map(objection).collect()
}

fn waits(text: &str) -> bool {
    text.contains("griddepcontrol.wait")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, body: &str) -> String {
        format!(".visible .entry {name}(\n.param .u64 {name}_param_0\n)\n{{\n{body}\nret;\n}}\n")
    }

    #[test]
    fn who_does_not_wait_and_whose_loads_overtake_the_wait_is_named() {
        let text = entry("right", "griddepcontrol.wait;\nld.global.f32 %f1, [%rd1];")
            + &entry("early", "ld.global.f32 %f1, [%rd1];")
            + &entry("overtaken", "griddepcontrol.wait;\nld.global.nc.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1];");
        assert_eq!(objections(&text), [("early", NEVER_WAITS), ("overtaken", READS_CONSTANTS)]);
    }

    #[test]
    fn a_function_may_wait_for_its_entry() {
        let text = ".func wait()\n{\ngriddepcontrol.wait;\nret;\n}\n".to_owned() + &entry("calls", "call wait;");
        assert_eq!(objections(&text), []);
    }
}
