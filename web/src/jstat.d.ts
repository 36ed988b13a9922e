/** The only function that the page uses. */
declare module "jstat" {
  const jStat: {
    /** The regularized lower incomplete gamma function P(shape, x). */
    lowRegGamma(shape: number, x: number): number;
  };
  export default jStat;
}
