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
    # only supposed
    ("the answer is (C).\n\nIf the answer is (A), 10 eV would follow.", "C"),
    ("If the answer is (A), x. The answer is C.", "C"), ("The answer is D. Assuming heat, the answer is A.", "D"),
    ("The answer is D. Had the question asked for the maximum, the correct answer is A.", "D"),
    ("Suppose the answer is A. Contradiction.", None), ("Suppose that the answer is A. Contradiction.", None),
    ("If the answer is A then x. Otherwise no.", None), ("Assume the correct answer is B.", None),
    ("The answer is D because if the answer is A we get a contradiction.", "D"), ("Were the answer A, no.", None),
    ("The answer is D. Were it hot, the answer is A.", "D"), ("The answer is A. When I redo it, the answer is B.", "B"),
    ("The answer is D. But if it is hot, the answer is A.", "D"), ("The answer is D.\n- If hot, the answer is A.", "D"),
    ("The answer is D. **If** it is hot,\nthe answer is A.", "D"),
    ("The answer is D. (If it were hot, the answer is A.)", "D"),
    ("The answer is D. Now suppose the answer is A.", "D"),
    ("The answer is D. If it is hot, option A is correct.", "D"), ("The answer is D. If option A is correct, no.", "D"),
    ("The answer is D. I wondered whether the answer is A.", "D"), ("The answer is D, unless the answer is A.", "D"),
    ("Suppose we take the first. Then the answer is A.", "A"), ("Suppose the answer is A; so the answer is B.", "B"),
    ("If the energy is 12 eV, then the answer is B.", "B"), ("When all forces are added, the answer is B.", "B"),
    ("If it is hot, the answer is A. If it is cold, the answer is B.", "B"), ("Whenever I look, the answer is B.", "B"),
    ("If it is hot, the answer is A. As it is cold, the answer is B.", "B"), ("If it is cold? The answer is B.", "B"),
    ("The answer is B. If it is hot, the answer would be A.", "B"), ("Had it been hot, the answer is A.\n\nB", "A"),
    ("The answer is D. Note: if it is hot, the answer is A.", "D"), ("The answer is B, if I am right.", "B"),
    ("The answer is D. If it is hot: the answer is A.", "D"), ("If the answer would be A, no. Answer: D", "D"),
    ("The answer is D. If the answer would be A, no.", "D"), ("If the answer would be A, no.", None),
    ("When 2.5 eV are lost, the answer is A. The answer is D.", "D"), ("If hot, A. So the answer is B.", "B"),
    # no condition: a conclusion, a method, and a word of the sentence before
    ("Answer: A. Wait.\nIf we substitute x=2 we get 4, so the answer is B.", "B"),
    ("Answer: A\n\nI made a sign error. If I fix it, the correct answer is (B).", "B"),
    ("Answer: A\nAssuming ideal gas as the question says, pV = nRT, so the correct answer is B.", "B"),
    ("It keeps all the atoms that the reactants had\n\nThe answer is B.", "B"), ("**What if**\n\nAnswer: (B)", "B"),
    ("Compare the pressures before and after, as they were\n\nAnswer: B", "B"),
    # what others think
    ("It might seem that (A) is the correct answer, but that ignores friction.\n\nB", "B"),
    ("At first glance, A is the correct answer, but friction matters.\n\nB", "B"),
    ("The student's claim: A is the correct answer.\n\nB", "B"), ("One may think (A) is the right choice.\nB", "B"),
    ("Student 1: A is the best answer.\nStudent 2: C is the best answer.\nB", "B"),
    ("Had this been 12, (A) is the correct answer.\nB", "B"),
    # without a noun before it
    ("(B) is the correct answer.", "B"), ("Hence, (B) is the correct answer.", "B"), ("B is the correct answer.", "B"),
    ("**(B)** is the correct answer.", "B"), ("So B is the best choice, since 2 eV are lost.", "B"),
    ("Since it is not zero, (B) is the right option.", "B"), ("It is not zero so (B) is the right option.", "B"),
    ("(B) is the correct answer to the question.", "B"), ("The answer is A. Now, (B) is the correct one.", "A"),
    ("Answer: A\nBut (B) is the correct answer to question 2.", "A"), ("Answer: A\nBut (B) is the best guess.", "A"),
    ("So (B) is the correct answer only at noon.", None), ("So is (B) the correct answer?", None),
    ("But (B) is the correct answer?", None), ("If (B) is the correct answer, energy is lost.", None),
    ("The answer is C. If (B) is the correct answer, energy is lost.", "C"), ("(B) is not the correct answer.", None),
    ("Neither (A) nor (B) is the correct answer.", None), ("I do not think that (B) is the correct answer.", None),
    ("(A) or (B) is the correct answer.", None), ("(A), (B) is the correct answer.", None),
    ("AB is the correct answer.", None),
    ("I doubt that (B) is the correct answer.", None), ("A common wrong option (B) is the best choice of many.", None),
    ("Vitamin B is the best choice.", None), ("A wrong option B is the correct answer for them.", None),
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
