//! What a vendor's library chose for a shape, kept as long as the process lives.

use crate::core::dtype::DType;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Choices by problem and dtype.
pub struct Choices<Problem, Choice>(LazyLock<Mutex<HashMap<(Problem, DType), Choice>>>);

impl<Problem: Copy + Eq + Hash, Choice: Clone> Choices<Problem, Choice> {
    pub const fn new() -> Self {
        Choices(LazyLock::new(Mutex::default))
    }

    fn made(&self) -> MutexGuard<'_, HashMap<(Problem, DType), Choice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The choice for a problem, if it was made.
    pub fn get(&self, problem: Problem, dtype: DType) -> Option<Choice> {
        self.made().get(&(problem, dtype)).cloned()
    }

    /// Makes the choice for a problem, unless it is made already.
    ///
    /// # Errors
    /// What `choose` said; it is asked again the next time.
    pub fn make(
        &self,
        problem: Problem,
        dtype: DType,
        choose: impl FnOnce(Problem, DType) -> Result<Choice, String>,
    ) -> Result<(), String> {
        if self.get(problem, dtype).is_none() {
            let choice = choose(problem, dtype)?;
            self.made().insert((problem, dtype), choice);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_made_once_a_problem_and_dtype() {
        static CHOICES: Choices<usize, usize> = Choices::new();
        assert_eq!(CHOICES.get(3, DType::F32), None);
        CHOICES.make(3, DType::F32, |problem, _| Ok(problem * 10)).expect("a choice");
        CHOICES.make(3, DType::F32, |_, _| unreachable!("it was chosen")).expect("the same");
        assert_eq!(CHOICES.get(3, DType::F32), Some(30));
        assert_eq!(CHOICES.get(3, DType::F16), None);
    }

    #[test]
    fn a_failure_is_no_choice() {
        static CHOICES: Choices<usize, usize> = Choices::new();
        assert_eq!(CHOICES.make(1, DType::F32, |_, _| Err("no library".to_owned())), Err("no library".to_owned()));
        CHOICES.make(1, DType::F32, |_, _| Ok(7)).expect("asked again");
        assert_eq!(CHOICES.get(1, DType::F32), Some(7));
    }
}
