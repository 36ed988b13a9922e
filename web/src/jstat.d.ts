/** The functions that the page uses. */
declare module "jstat" {
  const jStat: {
    /** The regularized lower incomplete gamma function P(shape, x). */
    lowRegGamma(shape: number, x: number): number;
    /** The complementary error function. */
    erfc(x: number): number;
  };
  export default jStat;
}
