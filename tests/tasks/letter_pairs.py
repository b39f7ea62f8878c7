"""Answers to multiple-choice questions, and the letter that each gives; `None`: it gives none."""

OPTIONS = ["5 eV", "10 eV", "15 eV", "A good one"]

LETTERS = [
    # alone
    ("B", "B"), ("b", "B"), ("(B)", "B"), ("B)", "B"), ("B.", "B"), ("**B**", "B"), ("**(B)**", "B"), (" B \n", "B"),
    ("`B`", "B"), ("$B$", "B"), (r"\(B\)", "B"), (r"\text{B}", "B"), ("[B]", "B"), ("B!", "B"),
    # with its option
    ("B) 10 eV", "B"), ("B. 10 eV", "B"), ("(B) 10 eV", "B"), ("B 10 eV", "B"), ("B: 10 eV", "B"),
    ("**B)** 10 eV", "B"),
    ("**B. 10 eV**", "B"), ("D) A good one", "D"), ("b) 10 eV", None),
    # boxed
    (r"\boxed{B}", "B"), (r"\boxed{\text{B}}", "B"), (r"\boxed{(B)}", "B"), (r"So it is $\boxed{\textbf{B}}$.", "B"),
    (r"\boxed{\text{(B) }10\text{ eV}}", "B"), (r"\boxed{b}", "B"), (r"\boxed{A}, no: \boxed{B}", "B"),
    (r"The answer is A. Wait: \boxed{B}", "B"), (r"\boxed{A} is wrong. The answer is (B).", "B"), (r"\boxed{10}", None),
    (r"\boxed{A, B}", None), (r"\boxed{A \text{ or } B}", None), (r"\boxed{AB}", None), (r"\boxed{}", None),
    (r"\boxed{B", None), (r"\fbox{B}", "B"), (r"The final answer is $\boxed{\mathrm{C}}$", "C"),
    # declared
    ("The answer is (B)", "B"), ("The answer is B.", "B"), ("The answer is B because energy is conserved.", "B"),
    ("The answer is **B**.", "B"), ("Answer: B", "B"), ("ANSWER: B", "B"), ("ANSWER: (B)", "B"), ("**Answer:** B", "B"),
    ("**Answer: B) 10 eV**", "B"), ("Answer:\n\nB", "B"), ("Final Answer: B", "B"), ("answer is b", "B"),
    ("The correct answer is option B.", "B"), ("The best option is C", "C"), ("Option B is correct.", "B"),
    ("Thus option (C) is the right one.", "C"), ("The correct choice is: (B) 10 eV", "B"), ("The answer is: B", "B"),
    ("It is 10 eV, so the answer must be B, as the work function is 2 eV.", "B"), ("The answer is\n(B)", "B"),
    ("First I thought that the answer is A. But the answer is B.", "B"), ("The answer is D, A good one.", "D"),
    ("The energy is 10 eV.\n\nAnswer: B\n", "B"), ("The answer is A, since 5 eV are left.", "A"),
    ("The answer is B. This answer is a good one.", "B"), ("Answer: B (10 eV)", "B"), ("Answer - B", None),
    ("So the answer would be B.", "B"), ("The answer would be C if it were hot. The answer is B.", "B"),
    ("The answer is B. A wrong answer is A.", "B"), ("A common answer: A. The best answer: B", "B"),
    ("Option B is correct and option C is not.", "B"), ("Option B is correct only at noon.", None),
    (r"\boxed{B}. The answer is A if the metal is cold.", "B"), (r"\boxed{A} is not right: \boxed{B}", "B"),
    (r"\boxed{B}. \boxed{A} was wrong.", "B"), ("Answer: B (not A)", "B"), ("Answer: A is wrong", None),
    ("My first answer was A. The final answer is B", "B"), (r"\boxed{10}. The answer is B.", "B"),
    # a line of its own
    ("The energy is 10 eV.\nB", "B"), ("B) 10 eV\n\nThe work function is 2 eV.", "B"),
    ("So 12 - 2 = 10 eV.\n\n**B**", "B"),
    ("A) is too small\nC) is too large\nB", None), ("A. 5 eV\nB. 10 eV\nC. 15 eV", None), ("(A)\n(B)", None),
    # letters that are words
    ("A good answer needs the work function.", None), ("A", "A"), ("The answer is a photon.", None),
    ("The answer is A photon of 10 eV.", None), ("I think that it is 10 eV.", None), ("A photon has 10 eV", None),
    ("The answer is I think the second.", None), ("A's energy is 10 eV", None), ("A-levels say 10 eV", None),
    # several, none, taken back
    (r"\boxed{A (or B)}", None), (r"\boxed{A) B)}", None), ("(A)(B)", None), ("A. B.", None), (r"\boxed{A B}", None),
    ("A or B", None), ("A, B", None), ("A/B", None), ("Answer: A or B", None), ("Answer: A, C", None),
    ("A and B", None),
    ("The answer is (A) or (B).", None), ("The answer is either A or B.", None), ("The answer is not B.", None),
    ("The answer is B. No, the answer is not B.", None), ("Answer: A and C are right", None), ("AB", None),
    ("10 eV", None), ("It is 10 eV, the second option.", None), ("", None), ("None of these.", None), ("E", None),
    ("Answer: E", None), ("The answer is the second option.", None), ("Answer: none", None), ("?", None),
    ("B" * 300, None), ("Option A is wrong. Option C is too large.", None), ("C_6H_6", None), ("B12", None),
]  # fmt: skip

TEN = [f"option {i}" for i in range(10)]
OF_TEN = [
    ("J", "J"), ("The answer is (J).", "J"), ("I", "I"), ("(I)", "I"), ("\\boxed{I}", "I"), ("The answer is I.", "I"),
    ("I, for one, doubt it.", None), ("I conclude that it is the ninth.", None), ("K", None),
    ("The answer is K.", None),
    ("H) option 7", "H"), ("The answer is I because of its sign.", "I"), ("The answer is I believe H.", None),
]  # fmt: skip
"""Of ten options, where `I` is one."""
