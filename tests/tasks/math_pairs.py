"""Right answers and what is offered for them: what is the same, and what a policy might try."""

SPELLINGS = [
    ("c-b", "-b+c"), ("xsiny+1", "x sin y + 1"), ("x ln x", "xlnx"), ("n log n", "nlogn"), ("cos t", "cost"),
    ("5 logs", "5"),
    # units, of one side or of both
    ("5", "5 cm"), ("5 cm", "5"), ("5 cm", r"5\text{ cm}"), ("5 cm", "5cm"), (r"5\text{ cm}", "5 centimeters"),
    ("5 cm^2", "5 square centimeters"), (r"5\text{ cm}^2", r"5\,\mathrm{cm}^2"), ("5", r"5\text{ square units}"),
    ("12 apples", "12"), ("12", "12 apples"), ("5 hours", "5 h"), ("60 mph", "60 miles per hour"), ("11", "11th"),
    (r"\$5", "5"), ("5", r"\$5"), (r"\$5", "5 dollars"), (r"\$1,250", "1250"), ("90", r"90^\circ"),
    ("90 degrees", r"90^\circ"), ("7", r"7\ \text{cm}"), (r"7 \text{ cm}", r"7 \text{ cm.}"), ("3:30 PM", "3:30 PM"),
    ("12", "12 dogs"), ("12", r"12\text{ men}"), ("4", "4 ways"), ("3", "3 cups of tea"), ("7", r"7\text{ N}"),
    ("9.8", r"9.8\text{ m/s}^2"), ("9.8", r"9.8\text{ m/s^2}"), ("20", r"20^{\circ}\text{C}"), ("2", "2 min"),
    ("20", "20 degrees Celsius"), ("5", r"5\,\mathrm{kHz}"), ("7", "7 sq ft"), ("24", "24 zeros"), ("3", "3 roots"),
    ("30", "30 sec"), ("5", "5 days"), ("5", "5 US dollars"), ("6", "6 eggs"), ("8", "8 months"), ("4", "4 tons"),
    ("2", "2 units per day"), ("2i", r"2\mathrm{i}"), (r"2\mathrm{i}", "2i"), (r"3\mathrm{e}", "3e"),
    ("5 dozen", r"5\text{ dozen}"), ("5 thousand", "5 thousand"),
    # units behind π or a variable
    (r"9\pi", r"9\pi\text{ cm}^2"), (r"9\pi\text{ cm}^2", r"9\pi"), (r"9\pi", r"9\pi \mathrm{cm^2}"),
    (r"9\pi", r"9\pi\ \mathrm{cm^{2}}"), (r"9\pi", "9π square inches"), (r"9\pi", r"9\pi cm^2"),
    (r"9\pi\text{ cm}^2", r"9\pi\text{ square centimeters}"), (r"2\pi", r"2\pi\text{ radians}"),
    ("2n", r"2n\text{ ways}"), ("k", r"k\text{ meters}"), ("2x", r"2x\text{ dollars}"),
    # percents
    ("12", r"12\%"), (r"12\%", "12"), ("0.5", r"50\%"), (r"50\%", "0.5"), ("0.25", "25%"), ("50%", "50"),
    # bases
    ("101_2", "101_{2}"), ("101_2", r"101_\text{two}"), ("101_2", "(101)_2"), ("101_2", "101 base 2"),
    # numbers
    ("3/2", r"1\frac{1}{2}"), ("3/2", "1 1/2"), ("1.5", r"\frac{3}{2}"), (r"\frac{1}{3}", r"0.\overline{3}"),
    ("1024", "2^{10}"), ("300000000", r"3\times 10^8"), ("3000", r"3 \cdot 10^{3}"), ("1000000", "1 000 000"),
    ("1000000", r"1\,000\,000"), ("10000", "10{,}000"), ("0", "-0"), ("-3", "−3"), (r"-\frac{1}{2}", r"\frac{-1}{2}"),
    (r"\frac{3}{4}", "(3)/(4)"), ("3", "+3"),
    # several values
    ("1,2", "2,1"), ("1,2", "1 and 2"), ("1,2", r"1 \text{ or } 2"), ("1,2", "x=1 or x=2"), ("1,2", r"\{1,2\}"),
    (r"\{1,2\}", "1, 2"), ("x=1,y=2", "y=2, x=1"), ("x=1,y=2", "(1,2)"), ("(1,2)", "x=1,y=2"), ("5", r"\{5\}"),
    (r"\pm 2", "2,-2"), (r"2\pm\sqrt{3}", r"2-\sqrt{3}, 2+\sqrt{3}"), ("-2,3", r"x=-2 \text{ and } x=3"),
    (r"\frac{1}{2}, 1", "1, 0.5"), (r"(\frac{1}{2},3)", "(0.5,3)"), ("[0,1)", r"\left[0, 1\right)"),
    # equations and inequalities
    ("x=5", "5"), ("y=2x+1", "f(x)=2x+1"), ("y=2x+1", "2x+1"), ("x>5", "5<x"), (r"x\ge 5", r"x \geq 5"),
    ("x+y=5", "y+x=5"), ("x+y=5", "2x+2y=10"), (r"x \in (1,2)", "(1,2)"), ("10", "5 + 5 = 10"),
    # names that are no single letter
    ("113", "m+n=113"), ("113", "m + n = 113"), ("113", "AB=113"), ("113", r"\angle A=113"), ("113", "|S|=113"),
    ("113", r"\text{Area}=113"), ("113", r"\text{Area of } ABC = 113"), ("113", r"\theta=113"), ("113", "=113"),
    ("113", "x+y+z = 113"), ("113", "f(2)=113"), ("113", "x_1+x_2=113"),
    ("113", "113 = m+n"), ("113", "AB = BC = 113"),
    ("113", "x = m+n = 113"), ("113", "m+n = 110+3 = 113"), ("1024", "m+n=1,024"), ("113", r"P(X=2)=113"),
    ("5 cm", r"AB = 5\text{ cm}"), ("5", r"AB=5\text{ cm}"), ("90", r"\angle ABC = 90^\circ"), (r"50\%", r"pq = 50\%"),
    (r"\frac{3}{4}", r"P(A) = \dfrac34"), (r"\sqrt{2}", r"AB = \sqrt2"), ("2^{1/3}", r"AB=\sqrt[3]{2}"),
    ("3+4i", "zw=3+4i"), ("(1,2)", "(x,y)=(1,2)"), (r"\frac{\pi}{6}", r"\theta = \frac{\pi}{6}"), ("-5", "|AB| = -5"),
    ("113", r"f^{-1}(2)=113"), ("113", r"\(m+n=113\)"),
    (r"\$5", r"\text{Cost} = \$5"), ("6 m", r"AB = 6\text{ m}"), ("x+1", "= x+1"),
    # formulas
    ("3+4i", "4i+3"), (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"), (r"3\sqrt{2}", r"\sqrt{18}"), ("xy", "yx"),
    ("(x+1)^2", "x^2+2x+1"), (r"\frac{x+1}{2}", "0.5x+0.5"), (r"\frac{\ln 3}{\ln 2}", r"\log_2 3"),
    ("2^{100}", "4^{50}"),
    ("10!", "10!"), (r"\frac{n(n+1)}{2}", r"\frac{n^2+n}{2}"), ("2^{1/3}", r"\sqrt[3]{2}"),
    (r"\sin x", r"\sin(x)"), (r"\sin(x)", r"\sin x"), (r"2\cos(2x)+1", r"1+2\cos 2x"), (r"\sqrt[3]{2}", r"\sqrt[3]2"),
    (r"\sqrt[3]2", r"\sqrt[3]{2}"), ("x^2", "x²"), ("x²", "x^2"), (r"2\pi r^{2}", r"2\pi r²"), ("x^{-1}", "x⁻¹"),
    (r"\emptyset", r"\varnothing"), (r"\varnothing", "∅"),
    # small numbers, by their exact values
    (r"\frac{1}{2^{2024}}", "2^{-2024}"), (r"1-\frac{1}{2024!}", r"\frac{2024!-1}{2024!}"),
    (r"\frac{1}{5000!}", r"\frac{1}{5000 \cdot 4999!}"), ("e^{-50}", r"\frac{1}{e^{50}}"),
    (r"\frac{\ln 2}{10^{40}}", r"\frac{\ln 4}{2\cdot 10^{40}}"), (r"10^{30}\pi", r"10^{29}\cdot 10\pi"),
    (r"\frac{x}{2^{2024}}", "2^{-2024}x"),
    # braces and bold print around all of it
    ("17", "{17}"), ("17", "{{17}}"), ("17", r"\fbox{17}"), ("17", r"\boldsymbol{17}"), ("x=17", r"x={17}"),
    ("x^2", "{x}^{2}"), (r"\frac{1}{2}", r"\boldsymbol{\frac12}"), ("1,2", "{1,2}"), ("17", r"\mathbf{17}"),
    (r"\frac{1}{2}", r"\bm{\frac12}"),
    # a variable behind its value
    ("y=2x+1", "2x+1=y"), ("2x+1=y", "y=2x+1"), ("5", "5=x"), (r"y=\frac{x}{2}", "x/2 = y"),
    # intervals as inequalities
    (r"(-\infty,5)", "x<5"), ("x<5", r"(-\infty,5)"), (r"(-\infty,5]", r"x \le 5"), (r"(5,\infty)", "x>5"),
    (r"(5,+\infty)", "5<x"), (r"[5,\infty)", "x>=5"), ("[2,5)", r"2 \leq x < 5"), (r"2\le x<5", "[2,5)"),
    ("(2,5]", "5≥x>2"), ("(2,5)", "2<x<5"), (r"(\frac{1}{2},\sqrt{2})", r"0.5 < t < \sqrt2"),
    (r"[-1,1]", r"-1\leqslant x\leqslant 1"),
    # other forms of a number, where the question has not got them
    ("7", "21/3"), ("2/3", "4/6"), (r"\frac{2}{3}", r"\frac{4}{6}"),
    (r"(-\infty,-2]\cup[2,\infty)", r"x \le -2 \text{ or } x \ge 2"), ("x<2 or x>3", r"(-\infty,2)\cup(3,\infty)"),
    # other spellings of numbers and of an inequality
    (r"11,\! 111,\! 111,\! 100", "11111111100"), (r"10,\! 080", "10,080"), (r"x \neq 2", r"x\ne2"),
    (r"x\ne 2", "x ≠ 2"), (r"-\frac{3}{4}", r"-\left(\frac{3}{4}\right)"), ("-3", "(-3)"), ("-3", "-(3)"),
    (r"\frac{-3}{4}", r"(-\frac{3}{4})"),
    ("6.02e23", r"6.02\times 10^{23}"), ("100", "1e2"), ("0.0015", "1.5e-3"), ("7", r"\textrm{7}"), ("2e-3", "2e - 3"),
    ("0.001", "1e-3"), ("0.001", "1E-3"), ("1e-3", "0.001"), ("-0.00001", "-1e-5"), ("0.00002", "2e-05"),
    (r"10^{-9}", "1e-9"),
    # words
    ("Yes", "yes"), (r"\text{east}", "East"), ("A", r"\text{A}"), ("(A)", "A"), ("no", "No"), ("No", "no"),
    ("3:5", "3:5"),
    # marks of formulas within a result
    ("42", "$42$ cm"), ("42", "$42$ apples"), ("42", "$42$ meters"), (r"\frac{1}{2}", r"$\frac{1}{2}$ hours"),
    ("30", "$30$ degrees"), ("9", "9 cm$^2$"), ("9", r"$9$ \text{cm}$^2$"), ("3,5", "$x=3$ or $x=5$"),
    ("42", "$ 42 $ cm"),
    ("(1,2)", "$x=1$, $y=2$"), ("x=1,y=2", "$x=1$, $y=2$"), ("42", r"\(42\text{ cm}\)"), ("42", "**$42$ cm**"),
    ("42", "Answer: $42$ cm."), ("42", "$$42$$ cm"), ("5", r"5 $\text{cm}$"), ("$42$ cm", "42"), ("3,5", "$3$ and $5$"),
    (r"\pi r^2", r"$\pi$$r^2$"),
    # dollars that are money
    ("5", "$5"), ("5", "$5$ dollars"), (r"\$5", "$5"), ("5 dollars", "$5$"), (r"\$5", r"$\$5$"), ("-5", "-$5"),
    ("5,6", "$5 and $6"), (r"\$5, \$6", "$5$ and $6$"), ("1000", "$1,000"), ("5 million", "$5 million"),
    # a name of the right answer
    ("(x,y)=(1,2)", "(1,2)"), ("(x,y)=(1,2)", "x=1, y=2"), ("(x,y)=(1,2)", "(y,x)=(2,1)"), ("x=2,y=3", "(x,y)=(2,3)"),
    (r"\left(x,\, y\right) = \left(1, 2\right)", "(1,2)"), (r"(a,b)=(\frac{1}{2},3)", "b=3, a=0.5"),
    ("m+n=113", "113"), ("AB = 17", "17"), ("f(2)=7", "7"), (r"\theta=\frac{\pi}{3}", r"\frac{\pi}{3}"),
    (r"AB = 17\text{ cm}", "17"), ("AB = 17", "17 cm"), ("113 = m+n", "113"), ("x=y=5", "5"),
    (r"|S|=\sqrt{8}", r"2\sqrt2"), (r"\left(x,\, y\right) = \left(1,\, 2\right)", "x=1, y=2"),
    (r"(r,\theta)=(3,\frac{\pi}{2})", r"(3,\frac{\pi}{2})"), (r"(3,\frac{\pi}{2})", r"(r, \theta) = (3,\frac{\pi}{2})"),
    ("f(2)=7", "f(2) = 7.0"), ("f(2)=7", "f(2)=3+4=7"), ("AB=17", "15+2=17"), ("AB=17", "=17"), ("AB=BC=17", "BC = 17"),
    ("m+n=113", "n+m=113"), ("f(2)=f(1)", "f(1)=f(2)"), (r"3\times4=12", r"4\times3=12"), ("x+y=5", "2y+2x=10"),
    # clock times, and ratios
    ("10:30", "10 : 30"), ("10:30", "10{:}30"), ("10:30", r"10\colon 30"), ("10:30", "10∶30"), ("10:30", "10:30 AM"),
    ("3:2", "6:4"), ("6:4", "3:2"), ("3:2", r"\frac{3}{2}"), ("3:2", "3/2"), ("9:16", r"\frac{9}{16}"),
    (r"1:\sqrt{2}", r"\sqrt2:2"),
]  # fmt: skip
"""The right answer, and another spelling of it."""

TRICKS = [
    # a function without its backslash is no product of letters
    ("xsiny+1", "ysinx+1"), (r"x\sin y+1", "ysinx+1"), (r"\cos x", "xcos"), ("cosx", "xcos"), ("cost", "tcos"),
    ("2sinxcosy", "2sinycosx"), ("sinxcosy+1", "sinycosx+1"), ("xsecy+1", "ysecx+1"), ("asinbx+1", "bsinax+1"),
    ("c-b", "b-c"), ("A-B-C", "A-C-B"), ("a-b-c", "a-c-b"), ("B-D-A-C", "B-A-C-D"),
    # units and bases
    ("5 cm", "5 m"), (r"5\text{ cm}", r"5\text{ m}"), ("100 km", "100 m"), ("5 hours", "5 minutes"),
    (r"5\text{ cm}^2", r"5\text{ cm}^3"), ("5 square cm", "5 cm"), (r"\$5", "5 cents"), (r"90^\circ", "90 radians"),
    ("5 east", "5 west"), ("3:30 PM", "3:30 AM"), ("101_2", "101"), ("101", "101_2"), ("101_2", "101_3"),
    # letters and words that only look like units
    ("5", r"5\mathrm{e}"), (r"2\mathrm{i}", "2"), ("3", "3 pi"), ("7", "7 xy"), ("5", "5 hundredth"),
    (r"4\text{ ln}", "4"),
    ("5", "5d"), ("5", "5m"), ("5m", "5"), ("5", "5c"), ("5", "5x"),
    # behind π or a variable, too
    ("5", r"5\text{ squared}"), ("n", r"n\text{ even}"), ("n", r"n\text{ prime}"), ("x", r"x\text{ squared}"),
    ("x", r"x\text{ negative}"), (r"9\pi", r"9\pi\mathrm{i}"), (r"2\pi", r"2\pi h"), (r"2\pi", r"2\pi mg"),
    (r"2\pi", r"2\pi r"), (r"9\pi\text{ cm}", r"9\pi\text{ m}"), (r"9\pi\text{ cm}^2", r"9\pi\text{ cm}"),
    (r"2\pi", r"2\pi\text{ million}"), ("n", r"n\text{ thirds}"),
    # what only looks like another spelling
    (r"x \ne 2", "x = 2"), (r"x \ne 2", r"x \ne 3"), ("5", "-(-5)"), ("0.002", "2e-3"), ("e^2", "2e2"),
    ("0.01", "10e-3"), ("0.002", "2E-3"), ("0.001", "1e-3x"), ("0.011", "11e-3"), ("2e-3", "2e-03"), ("0.001", "1e-4"),
    (r"(-\infty,-2)\cup(2,\infty)", r"x<-2 \text{ or } x\ge 2"), (r"(-\infty,-2)\cup(2,\infty)", "x<-2 or y>2"),
    (r"(-\infty,-2)\cup(2,\infty)", "x<-2, x>2"),
    # small numbers that differ
    (r"\frac{1}{2^{2024}}", r"\frac{1}{2^{2023}}"), (r"\frac{1}{100!}", r"\frac{1}{99!}"), (r"\frac{1}{100!}", "0"),
    (r"1-\frac{1}{2024!}", r"1-\frac{1}{2025!}"), (r"\frac{1}{5000!}", r"\frac{1}{4999!}"),
    (r"1-\frac{1}{2^{100000}}", r"1-\frac{1}{2^{99999}}"), (r"\frac{\sqrt2}{10^{40}}", r"\frac{\sqrt3}{10^{40}}"),
    (r"1-\frac{\sqrt2}{10^{40}}", r"1-\frac{\sqrt3}{10^{40}}"), (r"\frac{\ln 2}{10^{40}}", r"\frac{\ln 3}{10^{40}}"),
    ("1-e^{-4000}", "1-e^{-4001}"), ("e^{-50}", "0.0"), ("2^{-n-100}", "2^{-n-101}"),
    # several answers in one
    ("5", r"5\text{ or 6}"), ("5", r"5 \text{ or maybe 6}"), ("5", r"5 \text{ (not 5)}"), ("5", r"5\approx 6"),
    ("5", "5, 5"), ("5", "5 less"), ("5", "5 increase"), ("3", "x=3 or x=4"), ("1,2", "1,2,3"), ("5", "6 $5$"),
    ("5", r"x\in\{5,6\}"), ("A", "A or B"), ("5", r"5\vee 6"), ("5", "6; 5"), (r"\pm 2", "2"), ("2", r"\pm 2"),
    # numbers that run together
    ("56", "5 6"), ("56", "5\n6"), ("56", r"5\,6"), ("123", "1 2 3"), ("11/2", "1 1/2"), ("53", "5:3"), ("5:3", "3:5"),
    # what is still to be computed
    ("56088", "123*456"), ("56088", r"123 \times 456"), ("2", "1+1"), ("120", "5!"), ("10", r"\binom{5}{2}"),
    ("1/2", r"\int_0^1 x \, dx"), (r"\frac{\pi}{4}", r"\int_0^1 \frac{1}{1+x^2} dx"), ("5050", r"\sum_{k=1}^{100} k"),
    ("5", r"\sqrt{25}"), ("5", "|-5|"), ("6", r"\gcd(12,18)"), ("5", "-(-5)"), ("5", "--5"), ("1", "x/x"),
    ("1", r"\sin^2 x+\cos^2 x"), (r"\frac{\sqrt{3}}{2}", r"\sin \frac{\pi}{3}"), ("0.5", "1/2+0"),
    (r"6\sqrt{2}", r"\sqrt{50}+\sqrt{18}-\sqrt{8}"), ("(56088, 2)", "(123*456, 2)"), ("2, 3", "1+1, 3"),
    # names, orders, brackets
    ("x=5", "y=5"), ("x=1,y=2", "x=2,y=1"), ("x=1,y=2", "2,1"), ("(1,2)", "(2,1)"), ("(1,2)", "1,2"), ("(1,3)", "1,3"),
    ("1,2", "(1,2)"), ("[0,1)", "(0,1)"), ("[0,1]", r"\{0,1\}"), ("x+y=5", "5"), ("x>5", "5"), ("x>5", r"x \ge 5"),
    (r"\{1,2\}", "1"), ("x>5", "x<5"),
    # several values beside a name, or none that is one
    ("113", "x=113=114"), ("113", "x=114=113"), ("113", "m+n=114=113"), ("113", "m+n=113=114"), ("5", "2+3=6"),
    ("6", "2+3=6"), ("113", "a=1, b=113"), ("113", "AB=1, CD=113"), ("113", "AB=113, CD=114"), ("113", "AB=1; CD=113"),
    ("113", r"AB=1 \text{ or } CD=113"), ("113", r"AB=1 \quad CD=113"), ("113", "AB=1 CD=113"), ("113", "AB=1\nCD=113"),
    ("113", r"AB=1 \implies CD=113"), ("113", "m+n=114"), ("113", "m+n"), ("113", "m+n="), ("113", "==113"),
    ("113", "m+n==113"), ("113", "113="), ("113", "m=n"),
    # a name that says something else of the value
    ("113", "2AB=113"), ("113", r"\frac{AB}{2}=113"), ("113", r"\frac{1}{AB}=113"), ("113", r"\sqrt{mn}=113"),
    ("113", "AB-3=113"), ("113", "m+n+1=113"), ("113", "-m-n=113"), ("25", "x^2+y^2=25"), ("5", "y-2x=5"),
    ("4", r"\ln A=4"), ("113", r"\text{a third of the area}=113"), ("113", r"\text{the square of the answer}=113"),
    ("113", r"\text{opposite of}=113"), ("113", r"\text{at most }n=113"),
    ("113", "x+1=113"), ("113", "2x=113"), ("113", "x-0=113"), ("25", "x^2=25"), ("113", "-x=113"),
    ("113", r"\sqrt{x}=113"), ("113", r"\ln x=113"), ("113", r"x\cdot x=113"), ("113", "AB != 113"),
    ("113", "x!=113"),
    ("113", r"AB\not=113"), ("113", r"AB \ne 112 = 113"), ("113", r"AB\approx 112=113"), ("113", "AB<CD=113"),
    ("113", r"\text{not}=113"), ("113", r"\text{maybe } x = 113"), ("113", r"\text{wrong answer}=113"),
    ("113", r"112\text{ cm}=113"), ("5", r"5\text{ dozen}=5"), ("5", "5 dozen=5"), ("113", r"AB~=113"),
    ("113", r"\log_2 8=113"), ("113", r"e^{\ln 4}=113"), ("113", r"10!=113"), ("113", r"\sum_{k=1}^{3} k=113"),
    ("5", "m+n = 2+3"), ("56088", r"m+n=123\times456"), ("5 cm", r"AB = 5\text{ m}"), ("5", r"AB=5\mathrm{i}"),
    # equations between formulas
    ("x+1", "m+n=x+1"), ("m+n", "m+n=5"), ("m+n", "m+n=x+1"), ("x+1", "x+1=x+2"), ("x+1", r"x^2-1=x+1"),
    ("(x-1)(x+1)", "x^2+1=(x-1)(x+1)"), (r"\text{east}", r"\text{west}=\text{east}"), ("x=5", "AB=5"),
    ("x+y=5", "AB=5"), ("x+y=5", "x-y=5"), ("No", r"\text{Yes}=\text{No}"), ("1,2", "AB=1,2"),
    # what only looks like another spelling
    (r"\sin xy", r"\sin(x)y"), (r"\sin(xy)", r"\sin(x)y"), (r"\sin(x+1)", r"\sin x+1"), ("x^2", "x₂"), ("x2", "x²"),
    (r"\sqrt[3]{12}", r"\sqrt[3]12"), (r"\sqrt[3]{2}", r"\sqrt[4]2"), ("0", r"\varnothing"), ("17", "{16}"),
    ("17", "{1}7"),
    ("5", "{5,6}"), ("17", r"\fbox{16}"), ("17", r"\boldsymbol{17}6"), ("12", "{1}{2}"),
    ("y=2x+1", "2x+1=z"), ("y=2x+1", "2y+1=x"), ("y=2x+1", "2x+2=y"), ("5", "x+5=x"), ("x+5", "x+5=x"),
     ("5", "6=x"), ("5", "5=x=6"),
    (r"(-\infty,5)", r"x \le 5"), (r"(-\infty,5)", "x>5"), (r"(-\infty,5)", "x<6"), (r"(-\infty,5)", "5<x"),
    ("[2,5)", "2<x<5"), ("[2,5)", r"2 \le x \le 5"), ("[2,5)", "2<x"), ("(2,5)", "2<x>5"), ("(2,5)", "5<x<2"),
    ("(2,5)", "2<x<5<y"), ("(2,5)", "2<xy<5"), ("x<5", r"(-\infty,5]"), ("x<5", "(0,5)"),
    ("5", "x<5"), ("(2,5)", "x<5"),
    ("(2,3)", "2,3"), ("2,3", "(2,3)"), (r"\{2,5\}", "2<x<5"),
    # words that multiply the number, or take it back
    ("5", "5 hundred"), ("5", r"5\mathrm{ million}"), ("5", "5 dozen"), ("5", "5 halves"),
    ("5", r"5\text{ and a half}"),
    ("5", "5 factorial"), ("5", "5 point six"), ("5", "5 negative"), ("5", r"5\text{ six}"), ("5", "5 false"),
    ("5", "5 otherwise six"), ("5", "5 squared"), ("5", "5 cubed"),
    # words whose letters are only in another order
    ("east", "seat"), ("ABC", "CAB"), ("no", "on"), ("Yes", "No"),
    # numbers that are only near
    (r"\sqrt{2}", "1.41421356237310"), (r"\pi", "3.141592653589793"), ("e", "2.718281828459045"),
    (r"1+\sqrt2", "2.414213562373095"), ("0", "10^{-13}"), (r"10^{-13}", "0"), (r"\frac{1}{2^{50}}", "0"),
    (r"0.\overline{3}", "0.3"), ("0.5", r"0.5\%"), ("10^6", "10^{6}+1"),
    # marks of formulas, money
    ("65", "6 $5$"), ("65", "$6$$5$"), ("6000", "6 $000$"), ("6000", r"\(6\) \(000\)"), ("42 cm", "$42$ m"),
    ("5", "$5$ or $6$"), ("5", "-$5"), ("5", "$5$ dozen"), (r"\$5", "$5$ cents"), ("1234", "$1$,$234$"),
    # a right answer that is an equation itself, or has another name
    ("y=2x+1", "1"), ("x^2+y^2=25", "25"), ("xy=6", "6"), ("|z|=5", "5"), ("6=xy", "6"), ("2x=6", "6"),
    ("AB=17", "CD=17"), ("y=2", "x=2"), ("m+n=113", "m-n=113"), ("m+n=113", "114"), ("AB = 17 m", "17 cm"),
    ("(x,y)=(1,2)", "(2,1)"), ("(x,y)=(1,2)", "(a,b)=(1,2)"), ("(x,y)=(1,2)", "x=2, y=1"), ("(x,y)=(1,2)", "x=1"),
    ("(x,y)=(1,2)", "(1,2,3)"), ("x=2,y=3", "(x,y)=(3,2)"), ("x=2,y=3", "(x,y)=(2,3),(3,2)"),
    # equations without variables
    ("f(2)=110", "f(2)=111"), ("f(2)=110", "f(3)=110"), ("f(2)=110", "g(2)=110"), ("f(2)=2f(1)", "f(2)=3f(1)"),
    ("2+3=5", "1+1=2"), ("2+3=5", "1+1=3"), (r"\gcd(a,b)=7", r"\gcd(a,b)=8"), (r"\varphi(8)=4", r"\varphi(8)=5"),
    # clock times, and ratios
    ("10:30", "5:15"), ("2:30", "1:15"), ("9:30", "3:10"), ("10:30", "1/3"), ("10:30", "20:60"), ("3:05", "3:5"),
    ("10:30 AM", "5:15 AM"), ("10:30", "5{:}15"), ("10{:}30", "5{:}15"), ("2:30:00", "1:15:00"), ("1:20", "0.5:10"),
    ("10:30pm", "5:15pm"), ("1:3", "10:30"), ("3:2", "1.5"), ("9:16", "18:32"), ("3:2", "2:3"), ("3:2", "9:4"),
    ("0:0", "3:2"), ("3:2", "0:0"),
]  # fmt: skip
"""The right answer, and a wrong one that a lenient comparison would take."""

COPIED = [
    ("Factor $x^2-1$.", "(x-1)(x+1)", "x^2 - 1"),
    (r"Simplify $\sqrt{18}$.", r"3\sqrt{2}", r"\sqrt{18}"),
    ("What is $2^{10}$?", "1024", "2^{10}"),
    (
        r"Compute $\frac{1}{\sqrt{2}} + \sqrt2$ in simplest form.",
        r"\frac{3\sqrt{2}}{2}",
        r"\frac{1}{\sqrt{2}}+\sqrt{2}",
    ),
    (r"Expand $(a+b)^2$.", "a^2+2ab+b^2", "(a+b)^2"),
    # in another dress
    ("Factor $x^{2}-1$.", "(x-1)(x+1)", "x^2-1"),
    ("Factor $x^2-1$.", "(x-1)(x+1)", "-1+x^2"),
    ("Factor $x^2-1$.", "(x-1)(x+1)", "(x^2-1)"),
    ("Factor $x^2-1$.", "(x-1)(x+1)", "{x^2-1}"),
    ("Factor $x^2-1$.", "(x-1)(x+1)", "x^2 - 1 + 0"),
    ("Factor $f(x) = x^2-1$.", "(x-1)(x+1)", r"\left(x^2-1\right)^1"),
    ("Expand $(x+1)^2$.", "x^2+2x+1", "(1+x)^2"),
    (r"Simplify $\sqrt{18}$.", r"3\sqrt{2}", r"+\sqrt{18}"),
    (r"Simplify $\sqrt{18}$.", r"3\sqrt{2}", r"1\sqrt{18}"),
    (r"Simplify $\sqrt{18}$.", r"3\sqrt{2}", r"\sqrt{018}"),
    ("What is $2^{10}$?", "1024", r"1\times 2^{10}"),
    ("What is 7^5?", "16807", "7^{5}"),
    ("Write $x<-2$ or $x>2$ as a union.", r"(-\infty,-2)\cup(2,\infty)", "x<-2 or x>2"),
    ("What is $7^{5}$?", "16807", "7^5"),
    ("What is 2^10?", "1024", "2^{10}"),
    ("What is 2^10?", "1024", "4^{5}"),
    ("What is $4^5$ less one, plus one?", "1024", "2^{10}"),
    ("What is $2^{10}$?", "1024", r"1.0\cdot 2^{10}"),
    ("What is $2^{10}$?", "1024", "+2^{10}"),
    ("What is $2^{10}$?", "1024", "02^{10}"),
    ("Simplify $(x²)²$.", "x^4", "(x²)²"),
    ("What is 21/3?", "7", "21/3"),
    (r"What is $\frac{21}{3}$?", "7", "21/3"),
    (r"What is $21 \div 3$?", "7", r"\frac{21}{3}"),
    ("Reduce $4/6$.", "2/3", r"\frac46"),
    (r"Reduce $-\dfrac{4}{6}$.", r"-\frac{2}{3}", "-4/6"),
    ("Write $x<5$ as an interval.", r"(-\infty,5)", "x<5"),
    (r"Write $2 \le x < 5$ as an interval.", "[2,5)", r"2\leq x<5"),
    (r"Which inequality describes $(-\infty,5)$?", "x<5", r"(-\infty,5)"),
]
"""A question, the right answer, and what of the question has the same value."""

OTHER_FORMS = [
    ("What is $1000^2$?", "1000000", "10^{6}"),
    ("What is the product of ten twos?", "1024", "2^{10}"),
    ("Factor $1-x^2$.", "(1-x)(1+x)", "-(x-1)(x+1)"),
    ("Factor $x^2-1$.", "(x-1)(x+1)", "(1+x)(-1+x)"),
    ("Factor $x^2-1$.", "(x-1)(x+1)", "-(1-x)(1+x)"),
    ("Factor $x^2+2x+1$.", "(x+1)^2", "(x+1)(x+1)"),
    ("Factor $2x^2-8$.", "2(x-2)(x+2)", "(2x-4)(x+2)"),
    ("Factor $2x+2$.", "2(x+1)", "(1+x)2"),
    ("Expand $(x+1)^2$.", "x^2+2x+1", "1+2x+x^2"),
    ("Expand $(x+1)^2$.", "x^2+2x+1", "(x^2+2x+1)"),
    ("Expand $(a+b)(a-b)$.", "a^2-b^2", r"-b^2+a\cdot a"),
    (r"Simplify $\frac{2x+2}{4}$.", r"\frac{x+1}{2}", r"\frac{x}{2}+\frac{1}{2}"),
    (r"Simplify $\frac{2x+2}{4}$.", r"\frac{x+1}{2}", r"\frac{1}{2}(x+1)"),
    (r"Simplify $\frac{x^2+x}{x^2}$.", r"\frac{x+1}{x}", r"1+\frac{1}{x}"),
    (r"Simplify $\frac{x^2-1}{x-1}$.", "x+1", "1+x"),
    (r"Compute $\frac{1}{\sqrt{2}}+\sqrt2$.", r"\frac{3\sqrt{2}}{2}", r"\frac{3}{2}\sqrt{2}"),
    (r"Compute $\frac{1}{\sqrt{2}}+\sqrt2$.", r"\frac{3\sqrt{2}}{2}", r"\frac{3}{\sqrt{2}}"),
    (r"Compute $\frac{1}{\sqrt{2}}+\sqrt2$.", r"\frac{3\sqrt{2}}{2}", r"1.5\sqrt{2}"),
    (r"Compute $\sqrt{3}\cdot\sqrt{6}$.", r"3\sqrt{2}", r"\sqrt{18}"),
    (r"Simplify $\sqrt{18}$.", r"3\sqrt{2}", r"\frac{6}{\sqrt{2}}"),
    (r"Rationalize $\frac{1}{\sqrt{2}}$.", r"\frac{\sqrt{2}}{2}", r"\frac{1}{2}\sqrt{2}"),
    (r"Simplify $(x^2)^3$.", "x^6", "x^{6}"),
    (r"Simplify $2^x\cdot 2^x$.", "2^{2x}", "4^x"),
    ("If $f(x)=x^3+x$, find $f'(x)$.", "3x^2+1", r"1+3\cdot x^2"),
    (r"What is the sum of $\frac{x}{2}$ and $\frac{x}{3}$?", r"\frac{5x}{6}", r"\frac{5}{6}x"),
    (r"Find the slope field of $\frac{dy}{dx}=x(x+1)$ in expanded form.", "x^2+x", "x+x^2"),
    (r"Invert $\begin{pmatrix}1&2\\3&4\end{pmatrix}$.", r"\begin{pmatrix}-2&1\\1.5&-0.5\end{pmatrix}",
     r"\begin{pmatrix}-2&1\\\frac{3}{2}&-\frac{1}{2}\end{pmatrix}"),
    (r"Invert $\begin{pmatrix}1&2\\3&4\end{pmatrix}$.", r"\begin{pmatrix}-2&1\\1.5&-0.5\end{pmatrix}",
     r"\frac{1}{2}\begin{pmatrix}-4&2\\3&-1\end{pmatrix}"),
]  # fmt: skip
"""A question, the right answer, and another one that is neither its spelling nor the question's form."""

TUPLES = [
    ("Find the ordered pair $(x,y)$.", "(2,3)", "2,3", True),
    ("Find the ordered pair $(x,y)$.", "(2,3)", "2, 3", True),
    ("Find the coordinates of the vertex.", r"(\frac{1}{2},3)", "0.5, 3", True),
    ("Find $(a, b, c)$.", "(1,2,3)", "1, 2, 3", True),
    ("Find the vector.", "2, 3", "(2,3)", True),
    ("Find the ordered pair $(x,y)$.", "(2,3)", "3,2", False),
    ("Find the ordered pair $(x,y)$.", "(2,3)", "2,3,4", False),
    ("Find the ordered pair $(x,y)$.", "(2,3)", r"\{2,3\}", True),
    ("Find the ordered pair $(x,y)$.", "[2,3]", "2,3", False),
    ("For which $x$ is $x^2-5x+6<0$?", "(2,3)", "2,3", False),
    ("Find all $x$.", "2,3", "(2,3)", False),
]
"""A question, the right answer, what is offered, and whether it is right: of a tuple the question decides."""
